// A stand-in for verbs and the side channel inside one process, executing WRs by copying memory,
// with a hook that spoils one chosen thing. For the self-test only.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport.h"

namespace traffic {

// What to spoil; each hits the n-th opportunity.
enum class Spoil {
  kNothing,
  kFlipByte,          // one payload byte on the way
  kStrayByte,         // one byte beyond the message
  kWriteLost,         // reported complete, never executed
  kWritesSwapped,     // two silent WRITEs change places
  kGhostTarget,       // an old WRITE runs again after its notification was seen
  kGhostReceive,      // an old SEND's payload lands again in its consumed buffer
  kGhostLocal,        // a READ's answer arrives twice
  kNotificationLost,  // executed for the sender, never seen by the receiver
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
  kCompletionForeign,  // a wr_id that was never posted
  kCompletionQpNum,
  kCompletionOpcode,
  kReadLength,
  kReadFlip,
  kAtomicTwice,
  kErrorOvertakes,  // an error comes before the completion of an earlier WR
  kErrorTwice,
  kError,  // an error completion: no violation, but an error
  kCount,
};
const char* spoil_name(Spoil spoil);

class FakeEnd;

// Both ends and what is on the way between them.
class FakeFabric {
 public:
  FakeFabric(uint32_t qps, bool is_srq, Spoil spoil, uint64_t spoil_at);
  ~FakeFabric();
  Transport* transport(int end);
  SideChannel* side(int end);
  // So many polls later than usual does a ghost strike.
  void ghost_later(uint32_t polls) { ghost_later_ = polls; }
  bool was_spoiled() const { return was_spoiled_; }

 private:
  friend class FakeEnd;
  // True for the one opportunity that is to be spoiled.
  bool hit(Spoil spoil);
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
  std::optional<Held> held_;  // waits to be swapped with the next of its kind
  std::optional<ibv_wc> held_completion_;
  struct Ghost {
    std::byte* where;
    std::vector<std::byte> bytes;
    uint32_t delay;  // polls until it strikes
  };
  std::optional<Ghost> ghost_;
  uint32_t ghost_later_ = 0;
  std::unique_ptr<FakeEnd> ends_[2];
};

}  // namespace traffic
