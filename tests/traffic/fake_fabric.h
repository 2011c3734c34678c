// An imitation of verbs and the side channel inside one process. It executes WRs by copying memory
// and can spoil one chosen thing. Only the self-tests use it.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport.h"

namespace traffic {

// What the fabric spoils: the n-th thing of the named kind.
enum class Spoil {
  kNothing,
  kFlipByte,          // one payload byte changes on the way
  kStrayByte,         // one byte beyond the message is written
  kWriteLost,         // a WRITE completes but is never executed
  kWritesSwapped,     // two silent WRITEs change places
  kGhostTarget,       // an old WRITE runs again after its notification was seen
  kGhostReceive,      // an old SEND's payload lands again in its consumed buffer
  kGhostLocal,        // a READ's answer arrives twice
  kNotificationLost,  // a notification completes, but the receiver never sees it
  kNotificationTwice,
  kNotificationsSwapped,
  kImmWrong,
  kReceiveLength,
  kReceiveOpcode,
  kReceiveWrong,  // the completion names another receive WR
  kCompletionLost,
  kCompletionTwice,
  kCompletionsSwapped,
  kCompletionUnsignaled,
  kCompletionForeign,  // its wr_id was never posted
  kCompletionQpNum,
  kCompletionOpcode,
  kReadLength,
  kReadFlip,
  kAtomicTwice,
  kCompletionsStop,  // from here on nothing completes, though all is executed
  kCreditsStop,      // the receiver's WRITEs are lost from here on, as when its NIC dies
  kErrorOvertakes,   // an error comes before the completion of an earlier WR
  kErrorTwice,
  kError,  // an error completion, which is an error but no violation
  kCount,
};
const char* spoil_name(Spoil spoil);

class FakeEnd;

// Both ends, and what is under way between them.
class FakeFabric {
 public:
  FakeFabric(uint32_t qps, bool is_srq, Spoil spoil, uint64_t spoil_at);
  ~FakeFabric();
  Transport* transport(int end);
  SideChannel* side(int end);
  // Delays a ghost WRITE by `polls` polls.
  void ghost_later(uint32_t polls) { ghost_later_ = polls; }
  bool was_spoiled() const { return was_spoiled_; }

 private:
  friend class FakeEnd;
  // Whether this is the one thing that must be spoiled.
  bool hit(Spoil spoil);
  // Whether this thing, like all of its kind after the first, must be spoiled.
  bool hit_from_now(Spoil spoil) { return hit(spoil) || (spoil == spoil_ && was_spoiled_); }
  void execute(FakeEnd* from, uint32_t qp, SendRequest request);
  void deliver(FakeEnd* from, uint32_t qp, const SendRequest& request);
  void notify(FakeEnd* to, uint32_t qp, const SendRequest& request);
  void complete(FakeEnd* from, uint32_t qp, const SendRequest& request);

  const Spoil spoil_;
  uint64_t countdown_;
  bool was_spoiled_ = false;
  struct Held {
    FakeEnd* end;
    uint32_t qp;
    SendRequest request;
    std::vector<std::byte> payload;
  };
  std::optional<Held> held_;  // waits to change places with the next request of its kind
  std::optional<ibv_wc> held_completion_;
  struct Ghost {
    std::byte* where;
    std::vector<std::byte> bytes;
    uint32_t delay;  // polls until the bytes are written
  };
  std::optional<Ghost> ghost_;
  uint32_t ghost_later_ = 0;
  std::unique_ptr<FakeEnd> ends_[2];
};

}  // namespace traffic
