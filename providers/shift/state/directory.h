// Where processes tell of themselves, and where operators leave orders for them. All of it lies in
// one base folder, SHIFT_STATE_DIR:
//
//   BASE/shift-UID/               one folder for each user, that only the user and root can enter
//     PID-RANDOM.state            what a process tells (layout.h); locked as long as it lives
//     PID-RANDOM.ctl              a datagram socket: the process takes orders there (orders.h)
//     totals                      the counts of the user's processes that have ended
//     drained                     the user's order: NICs that the user's processes shall leave
//     hosts                       which addresses belong to one host, as processes have seen
//     shares                      over which NICs the processes' groups spread (shares_table.h)
//   BASE/shift-drained            root's order: NICs that all processes shall leave
//
// The base may be open to all, as /dev/shm is, so nothing in it is believed before its owner is
// known. These functions may be called from any thread; shiftctl uses them, too.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <set>
#include <string>

#include "util/unique_fd.h"

namespace shift::state {

inline constexpr char kDefaultBase[] = "/dev/shm";
inline constexpr char kStateEnd[] = ".state", kSocketEnd[] = ".ctl";
inline constexpr char kTotalsName[] = "totals", kDrainedName[] = "drained";
inline constexpr char kHostDrainedName[] = "shift-drained";
inline constexpr size_t kDrainedMax = 4096;  // bytes of a file of drained NICs
inline constexpr size_t kFilesMax = 4096;    // files in a user's folder that a reader looks at

std::string user_directory(const std::string& base, uid_t uid);

// Opens the user's folder; `make` makes it if it is missing. Invalid, with the reason in `problem`,
// if there is none, or if anybody but the user and root could write to it or read it.
UniqueFd directory_open(const std::string& base, uid_t uid, bool make, std::string& problem);

// What speaks against believing the content of a file, or null: it is a regular file of one of
// these users, with one name, and nobody else may write to it.
const char* file_problem(const struct stat& status, const std::set<uid_t>& owners);
// The kernel kills a process that writes behind its limit for files (RLIMIT_FSIZE).
bool write_is_allowed(size_t end);

// Opens a regular file of one of these users with one name for reading, and never waits. Invalid,
// with the reason in `problem`, which is empty if there is no such file. `directory` may be
// AT_FDCWD.
UniqueFd file_open(int directory, const std::string& name, const std::set<uid_t>& owners,
                   std::string& problem);

// The NICs that the orders in the base tell processes of this user to leave. An order that cannot
// be believed is left out, and `problem` says why.
std::set<std::string> drained_read(const std::string& base, uid_t uid, std::string& problem);

}  // namespace shift::state
