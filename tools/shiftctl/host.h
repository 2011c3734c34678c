// All that the processes of this host tell: root sees the folders of all users, and others see
// their own.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "process_file.h"
#include "util/unique_fd.h"

namespace shift::ctl {

struct User {
  uid_t uid = 0;
  std::string name;
  std::set<std::string> drained;  // by the user's own order
};

struct Host {
  std::vector<Process> processes;       // by user and process
  std::vector<User> users;              // whose folders are there
  std::set<std::string> drained;        // by root's order
  state::Counters ended;                // the counts of processes whose files are gone
  std::vector<std::string> unreadable;  // one line for each thing that was left out

  const std::string& user_of(uid_t uid) const;
  // Which orders tell the user's processes to leave the NIC: "root", the user's name, or nothing.
  std::string drained_by(uid_t uid, const std::string& nic) const;
};

// Where the folders lie, and whose this process may look into.
struct Place {
  std::string base;
  uid_t uid = 0;  // root looks into all folders

  static Place of(const std::string& option);  // the option, or SHIFT_STATE_DIR
};

Host host_read(const Place& place);

}  // namespace shift::ctl
