// A schedule: what happens in one run of the simulation. It has two hosts, what their applications
// do, and faults at steps of the protocol. All of it follows from a seed.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "util/config.h"

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

// What the application of one host does.
struct AppPlan {
  struct Send {
    ibv_wr_opcode opcode;
    bool signaled;
    uint8_t slot;  // which part of the peer's memory it writes or reads
    uint32_t length;
    microseconds when;
  };
  static constexpr uint32_t kSlots = 3, kLengthMax = 2600;
  int members = 2;
  Mode mode = Mode::kRelaxed;  // SHIFT_MODE
  bool only_receives = false;  // the QP stays in RTR
  uint32_t first_psn = 0;      // the start PSN that the application chose
  // The acknowledgement timeout that the application asks for; how often the NIC repeats is the
  // same for all. With that, the stock library may wait so long for what is gone.
  uint8_t timeout = 10;
  milliseconds patience() const;
  std::vector<Send> sends;
  // `receives` says when the receives for the peer's notifications are posted. kLate: not before
  // the network heals. kWayBack, which sends may have, too: at about the time of a failback.
  static constexpr microseconds kLate{-1}, kWayBack{-2};
  std::vector<microseconds> receives;
  microseconds poll_after{0};  // how late it polls its completions
};

enum class What : uint8_t {
  kPortDown,      // a port is down, and the device reports it
  kPortSilent,    // a port is down, and nothing reports it
  kScare,         // the device reports a port down, but it works
  kBlock,         // one direction of a path is lost in the network
  kRails,         // every straight path is lost, paths across rails work
  kSlow,          // packets are late
  kCut,           // the control channel carries nothing
  kReconnect,     // the channel breaks and is back; messages under way are lost
  kChannelLost,   // the channel is lost; each end notices, and the leader finds the peer again
  kRefuse,        // a NIC refuses to connect QPs
  kDeviceDeath,   // a NIC dies for good, without flushes
  kFenceFails,    // a QP cannot be brought to ERR
  kMute,          // a NIC does not tell how far its responders got
  kProcessDeath,  // the process of one end dies
  kClose,         // the application destroys its QP
  kTotalLoss,     // every port of one host is down for good
  kOutage,        // every port of one host is down for seconds
  kDrained,       // an operator drains a NIC
  kCount,
};
const char* to_string(What what);

// What is counted, from the last fault on, until the next fault comes.
enum class When : uint8_t { kSteps, kBeforeMessage, kAfterMessage, kTransition, kDrain, kCount };
const char* to_string(When when);

struct Fault {
  static constexpr int kCurrent = -1, kOther = -2;  // as the host sees it when the fault comes

  When when = When::kSteps;
  uint32_t count = 0;
  What what = What::kPortDown;
  int host = 0;
  int member = kCurrent;
  int peer_member = 0;
  // kBlock: the direction towards the host; kRails: both directions; kOutage: the devices say so.
  bool flag = false;
  microseconds lasts{0};  // 0: until everything heals
};

// What a stranger says: a message that it has heard, with changes.
struct Forged {
  struct Change {
    uint16_t at;  // the byte of the body, modulo the body's size
    uint8_t with;
  };
  // It is said before this message between the peers, counted from 1, and before those that follow.
  uint32_t before = 1;
  uint8_t times = 1;
  int host = 0;          // to whom
  uint8_t heard = 0;     // which of the last messages to that host, counted back from the newest
  bool is_near = false;  // the stranger is at the peer's address
  std::vector<Change> changes;
};

// How a run must end.
enum class Outcome : uint8_t {
  kComplete,  // everything is done, on the default path and in one epoch
  kUnproven,  // all is done, or it failed because an atomic was under way
  kEither,    // each end is done or has failed with the original error
  kFails,     // both ends fail
};

struct Schedule {
  uint64_t seed = 0;
  std::array<AppPlan, 2> apps;
  // More pairs of QPs between these two contexts; of these plans only the traffic counts. With
  // `one_cq` all are on one CQ, else each has its own.
  std::vector<std::array<AppPlan, 2>> more;
  bool one_cq = true;
  bool early = false;            // faults may come before the two ends have found each other
  uint32_t copies_percent = 0;   // so many of the messages arrive twice
  microseconds message_max{30};  // how long a message takes at most
  microseconds copy_max{30};     // how long a copy of it takes at most
  std::vector<Fault> faults;
  std::vector<Forged> forged;
  microseconds heal_after{0};  // from the last fault on
  bool default_dies = false;   // then there is no failback to it
  Outcome outcome = Outcome::kComplete;

  // Whether an end asks how far the other's responder got.
  bool asks() const { return apps[0].mode != Mode::kRelaxed || apps[1].mode != Mode::kRelaxed; }
};

Schedule schedule_make(uint64_t seed);
// The judges' bounds belong to certain settings, so the environment must not change them. To be
// called before anything reads the settings.
void settings_fix();
// Returns one line of text for people.
std::string to_string(const Fault& fault);
std::string to_string(const Schedule& schedule);

}  // namespace shift::sim
