// What happens in one run of the simulation: two hosts, what their applications do, and faults at
// steps of the protocol. All of it follows from a seed.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace shift::sim {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>((next() >> 32) * limit >> 32); }
  bool chance(uint32_t percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

// The application of one host.
struct AppPlan {
  struct Send {
    ibv_wr_opcode opcode;
    bool signaled;
    uint8_t slot;  // where it writes or reads in the peer's memory
    uint32_t length;
    microseconds when;
  };
  static constexpr uint32_t kSlots = 3, kLengthMax = 2600;
  int members = 2;
  bool exact = false;          // SHIFT_MODE
  bool only_receives = false;  // its QP stays in RTR
  uint32_t first_psn = 0;      // of its application's connection
  // The acknowledgement timeout that its application asks for; how often its NIC repeats is the
  // same for all. How long the stock library may wait with that for what is gone.
  uint8_t timeout = 10;
  milliseconds patience() const;
  std::vector<Send> sends;
  // When the receives for the peer's notifications are posted. kLate: not before the network heals.
  // kWayBack, of sends too: about when a better path is gone back to.
  static constexpr microseconds kLate{-1}, kWayBack{-2};
  std::vector<microseconds> receives;
  microseconds poll_after{0};  // how late it looks at its completions
};

enum class What : uint8_t {
  kPortDown,      // and the device says so
  kPortSilent,    // nobody says anything
  kScare,         // the device says so and carries on
  kBlock,         // one direction of a path is lost in the network
  kRails,         // every path between equal members is lost: what is left goes across
  kSlow,          // packets are late
  kCut,           // the control channel carries nothing
  kReconnect,     // it breaks and is there again; what was under way is lost
  kChannelLost,   // it is gone; each end notices in its time, and the leader finds the peer anew
  kRefuse,        // a NIC refuses to connect QPs
  kDeviceDeath,   // without flushes, for good
  kFenceFails,    // a QP cannot be brought to ERR
  kMute,          // a NIC does not tell how far its responders got
  kProcessDeath,  // of one end
  kClose,         // the application destroys its QP
  kTotalLoss,     // every port of one host, for good
  kOutage,        // the same for seconds
  kCount,
};
const char* to_string(What what);

// When a fault comes, counted from the one before it.
enum class When : uint8_t { kSteps, kBeforeMessage, kAfterMessage, kTransition, kDrain, kCount };
const char* to_string(When when);

struct Fault {
  static constexpr int kCurrent = -1, kOther = -2;  // as seen by the host when it comes

  When when = When::kSteps;
  uint32_t count = 0;
  What what = What::kPortDown;
  int host = 0;
  int member = kCurrent;
  int peer_member = 0;
  bool flag = false;      // of kBlock: towards the host; of kOutage: the devices say so
  microseconds lasts{0};  // 0: until all heals
};

// What the end of a run must be.
enum class Outcome : uint8_t {
  kComplete,  // everything done, on the default path, same epoch
  kUnproven,  // done, or failed because an atomic was under way
  kEither,    // done or failed with the original error, each end for itself
  kFails,     // both ends fail
};

struct Schedule {
  uint64_t seed = 0;
  std::array<AppPlan, 2> apps;
  // What runs beside it over QPs of its own between the same two contexts; of these plans only the
  // traffic counts. All on one CQ, or each on its own.
  std::vector<std::array<AppPlan, 2>> more;
  bool one_cq = true;
  bool early = false;            // faults do not wait until the two ends have found each other
  uint32_t copies_percent = 0;   // of the messages arrive twice
  microseconds message_max{30};  // and each takes up to this
  microseconds copy_max{30};     // but a copy this long
  std::vector<Fault> faults;
  microseconds heal_after{0};  // behind the last fault
  bool default_dies = false;   // then there is no way back
  Outcome outcome = Outcome::kComplete;
};

Schedule schedule_make(uint64_t seed);
// One line for people.
std::string to_string(const Fault& fault);
std::string to_string(const Schedule& schedule);

}  // namespace shift::sim
