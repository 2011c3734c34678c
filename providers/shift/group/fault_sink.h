// What the data path reports to the control thread.
#pragma once

#include "fsm/fsm.h"
#include "group/cause.h"

namespace shift::group {

struct Group;
struct SharedQueue;

// Set once by control/ before the first QP exists. The functions may be called with any lock held,
// on any thread.
class FaultSink {
 public:
  // `member`: the member where it happened. The report is ignored if the group is not committed to
  // it any more when the report is handled. kNoMember: the member that the group is committed to
  // then.
  virtual void fault(Group* group, fsm::Event event, int member, Cause cause) = 0;
  // Ask whether the member's port is up: if it is, an error that was held back is the
  // application's, otherwise it is the path's.
  virtual void verdict_wanted(Group* group, int member) = 0;
  // A request waits in the send queue, perhaps for a key of the peer: ask for the key, or call
  // pump().
  virtual void pump_wanted(Group* group) = 0;
  // The command threads must call read_back_make().
  virtual void read_back_wanted(Group*) {}
  // The member's command thread must call the queue's recall_some().
  virtual void receives_wanted(SharedQueue*, int /*member*/) {}
  // The queue's take_turn() must be called, and again and again until it returns none.
  virtual void receives_scarce(SharedQueue*) {}
  // The member does not read back: the groups of the context whose data comes through it must leave
  // it.
  virtual void read_back_failed(Group*, int /*member*/) {}
  // The queue's receives on `member` cannot be brought back, or none can be posted there: the
  // groups that consume there must leave it. Called on any thread.
  virtual void receives_stuck(SharedQueue*, int /*member*/) {}
  // A receive that has to go to `member` names a region that is not registered there.
  virtual void receives_refused(SharedQueue*, int /*member*/) {}

 protected:
  ~FaultSink() = default;
};
inline constinit FaultSink* fault_sink = nullptr;

}  // namespace shift::group
