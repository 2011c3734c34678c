// Where the groups of each NIC go when it fails, as the user's processes tell each other: a file in
// the user's folder (directory.h). It is a row of slots, each of the size of one place (layout.h).
// A process owns a slot for each NIC whose groups it shares out; nobody else writes there, and a
// lock on the slot lasts as long as the process, so that a slot counts no more when its process has
// ended in whatever way. NICs go by their own numbers (node GUIDs), which no two of a host have in
// common; names differ from container to container.
//
// A file that cannot be used, or a slot that cannot be believed, is left out and costs one line in
// the log. Only the control loop uses this, or one thread of a test.
#pragma once

#include <sys/types.h>

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "state/layout.h"
#include "util/unique_fd.h"

namespace shift::state {

inline constexpr char kSharesName[] = "shares";
inline constexpr size_t kShareSlots = 1024;

struct ShareRecord {
  static constexpr Kind kKind = Kind::kShares;
  static constexpr size_t kPlaces = 1;

  Head head{};
  uint64_t magic = kMagic;
  uint32_t layout_version = kLayoutVersion;
  uint32_t pid = 0;                       // for people who look
  std::array<uint64_t, kMembers> nics{};  // first the groups' own NIC; 0: not used
  // How many groups go to one of these NICs first and to another one second; [x][0]: to none.
  std::array<std::array<uint16_t, kMembers>, kMembers> groups{};
};
static_assert(kFits<ShareRecord>);

class SharesTable {
 public:
  // So often a process looks whether another one has ended its turn, each time after 0.2 ms.
  static constexpr int kTries = 80;

  SharesTable(std::string base, uid_t uid, int tries = kTries)
      : base_(std::move(base)), uid_(uid), tries_(tries) {}

  // A process reads what the others have, chooses, and tells what it has chosen while it has its
  // turn. Without turns, processes that choose at the same moment would choose alike. Nobody waits
  // long: a process that does not get its turn in time, because the one that has it is stopped,
  // chooses without it, and does not wait for the next one. Then it may choose as those do that
  // choose at that moment; what they chose before counts all the same.
  class Turn {
   public:
    explicit Turn(SharesTable* table) : table_(table) {
      is_held_ = table_ != nullptr && table_->turn_begin();
    }
    ~Turn() {
      if (is_held_) table_->turn_end();
    }
    Turn(const Turn&) = delete;
    bool is_held() const { return is_held_; }

   private:
    SharesTable* table_;
    bool is_held_;
  };

  // So many groups go to these NICs. `second` 0: to no second one.
  struct Spares {
    uint64_t first = 0, second = 0;
    int64_t groups = 0;
    bool operator==(const Spares&) const = default;
  };
  // Of the groups that other live processes of the user have on the NIC.
  std::vector<Spares> others(uint64_t nic);
  // Counts groups of this process in, or out. A NIC for which there is no slot any more, or more
  // than a slot has room for, is not told to others.
  void count(uint64_t nic, uint64_t first, uint64_t second, int change);

 private:
  struct Slot {
    size_t place = kShareSlots;  // kShareSlots: none was free
    ShareRecord record;
    // The same numbers, without their limits.
    std::array<std::array<int64_t, kMembers>, kMembers> groups{};
  };

  bool turn_begin();
  void turn_end();
  bool is_ready();
  bool open();
  void claim(Slot& slot);
  void write(Slot& slot);
  bool read(size_t place, ShareRecord& record);
  void tell(const std::string& problem);

  const std::string base_;
  const uid_t uid_;
  const int tries_;
  bool is_off_ = false, is_told_ = false, has_missed_turn_ = false;
  UniqueFd file_;
  dev_t device_ = 0;
  ino_t number_ = 0;
  std::map<uint64_t, Slot> own_;  // by the groups' own NIC
  std::bitset<kShareSlots> is_own_;
  std::vector<char> bytes_;
};

}  // namespace shift::state
