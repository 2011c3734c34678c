// How the data path tells the control thread.
#pragma once

#include "fsm/fsm.h"
#include "group/cause.h"

namespace shift::group {

struct Group;
struct SharedQueue;

// Set once by control/ before the first QP exists. Called with any lock held, on any thread.
class FaultSink {
 public:
  // `member`: the one it happened on; what is not committed any more when this is handled is not
  // news. kNoMember: whichever is.
  virtual void fault(Group* group, fsm::Event event, int member, Cause cause) = 0;
  // Something waits in the send queue, perhaps for a key of the peer's: ask for that, or pump().
  virtual void pump_wanted(Group* group) = 0;
  // The worker shall call the queue's recall_some().
  virtual void receives_wanted(SharedQueue*) {}
  // Nor can that bring any back from `member`, which does not work. From the worker.
  virtual void receives_stuck(SharedQueue*, int /*member*/) {}
  // A receive that has to go to `member` names a region which is not registered there.
  virtual void receives_refused(SharedQueue*, int /*member*/) {}

 protected:
  ~FaultSink() = default;
};
inline constinit FaultSink* fault_sink = nullptr;

}  // namespace shift::group
