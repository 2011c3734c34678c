// The application breaks or destroys its QP while the layer has work under way for that QP.
#include "ops/test/queue_pairs.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "group/member_qp.h"
#include "group/shared_queue.h"
#include "group/test/asleep.h"
#include "group/test/fake.h"
#include "ops/create_qp.h"
#include "ops/open_contexts.h"
#include "ops/tables.h"

namespace shift::ops {
namespace {

// C1: the coordinator, for which the error was held back, no longer knows the QP.
TEST_F(QueuePairs, AnErrorThatWasHeldBackComesWhenTheApplicationBreaksItsQp) {
  for (uint64_t id : {1u, 2u, 3u}) send(id);
  for (uint64_t id : {11u, 12u}) receive(id);
  break_default();
  to_error();
  control_.run();  // the report of the error comes too late
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_RETRY_EXC_ERR},
                                 {2, kFlushed},
                                 {3, kFlushed},
                                 {11, kFlushed},
                                 {12, kFlushed}}));
}

TEST_F(QueuePairs, WhatTheNicHoldsComesWhenTheApplicationBreaksItsQp) {
  for (uint64_t id : {1u, 2u}) send(id);
  receive(11);
  to_error();
  EXPECT_EQ(poll(), (Completions{{1, kFlushed}, {2, kFlushed}, {11, kFlushed}}));
}

// In the middle of a round no NIC holds the requests that are parked.
TEST_F(QueuePairs, WhatIsParkedComesWhenTheApplicationBreaksItsQp) {
  for (uint64_t id : {1u, 2u}) send(id);
  receive(11);
  ASSERT_TRUE(group::fence({group_})[0]);
  send(3);
  to_error();
  EXPECT_EQ(poll(),
            (Completions{{1, IBV_WC_RETRY_EXC_ERR}, {2, kFlushed}, {3, kFlushed}, {11, kFlushed}}));
}

// No request of the peer arrives through a QP in ERR.
TEST_F(QueuePairs, NothingIsWithheldForAQpThatTheApplicationEnds) {
  group::ToldKeys& told = world_.context.told_keys;
  const auto withdraw = [&] {
    told.tell(group_->life.serial, 1);
    EXPECT_TRUE(told.withdraw(1));
    EXPECT_TRUE(told.withholds_any());
  };
  withdraw();
  to_error();
  EXPECT_FALSE(told.withholds_any());
  withdraw();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  EXPECT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE), 0);
  EXPECT_FALSE(told.withholds_any());
  withdraw();
  world_.let_go(group_);
  EXPECT_EQ(destroy_qp(group_->handle()), 0);
  EXPECT_FALSE(told.withholds_any());
}

// C3: no connection that a command thread was making is left after a QP has failed.
TEST_F(QueuePairs, ConnectionsUnderWayAreShutWithTheQp) {
  send(1);
  break_default();
  int error = -1;
  job_for(group_, [&](Group& group) {
    wire::QpAddress own;
    error = group::member_qp_address(group, kBackup, world_.nic(kBackup).gid, &own);
    if (error == 0) error = group::member_qp_connect(group, kBackup, own, own);
  });
  to_error();
  worker_.run();
  ASSERT_EQ(error, 0) << "the test's own connection";
  ASSERT_TRUE(std::ranges::count(World::fake(group_, kBackup).walk, IBV_QPS_RTS));
  for (int member : {kDefault, kBackup}) {
    EXPECT_TRUE(World::fake(group_, member).in_error()) << member;
  }
}

// The NIC refuses the change without effect, and so must the layer: the control thread knows the QP
// by its name.
TEST_F(QueuePairs, ARefusedConnectionLeavesTheNamesAlone) {
  group::FakeNic& nic = world_.nic(kDefault);
  nic.link_local = wire::Gid::from_ipv4(htonl(0x7f000004));  // another address, in place 1
  const wire::QpName local = group_->life.ends.local, remote = group_->life.ends.remote;
  group_->life.peer_present = true;
  coordinator_.group_add(group_);
  control_.run();
  net::Delegate& asked = coordinator_;
  ASSERT_TRUE(asked.knows_qp(local));
  on_default().modify_error = EINVAL;  // the QP is in RTS
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.sgid_index = 1;
  attr.ah_attr.grh.dgid = wire::Gid::from_ipv4(htonl(0x7f000007)).to_verbs();
  attr.dest_qp_num = 0x888;
  EXPECT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN), EINVAL);
  EXPECT_EQ(group_->life.ends.local, local);
  EXPECT_EQ(group_->life.ends.remote, remote);
  EXPECT_TRUE(group_->life.peer_present);
  on_default().modify_error = 0;
  to_error();
  EXPECT_FALSE(asked.knows_qp(local));
}

TEST_F(QueuePairs, IsDestroyedBehindWhatTheCommandThreadDoesForItOffTheDefault) {
  Group* group = world_.make_group(cq_);
  world_.let_go(group);
  group::leave_for(*group, kBackup, kBackup);
  bool done = false;
  job_for(group, [&](Group& g) { done = g.real[kBackup] != nullptr; });
  ASSERT_EQ(destroy_qp(group->handle()), 0);
  EXPECT_TRUE(done);
}

// A fence is given up when its group is forgotten, but its command may be under way.
TEST_F(QueuePairs, IsDestroyedBehindTheCommandsOfAFence) {
  static std::vector<const char*> calls;
  calls.clear();
  StockVerbs table = *stock;
  table.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int) {
    qp->state = attr->qp_state;
    calls.push_back("modify");
    return 0;
  };
  table.destroy_qp = [](ibv_qp*) {
    calls.push_back("destroy");
    return 0;
  };
  const StockVerbs* const before = std::exchange(stock, &table);
  Group* group = world_.make_group(cq_);
  world_.let_go(group);
  group::park({&group, 1});
  {
    group::Fence fence({group}, group::kPatience);
    fence.forget(group);
  }
  EXPECT_TRUE(calls.empty());
  ASSERT_EQ(destroy_qp(group->handle()), 0);
  ASSERT_GE(calls.size(), 2u);
  EXPECT_STREQ(calls[0], "modify");
  EXPECT_STREQ(calls[1], "destroy");
  worker_.run();
  stock = before;
}

// The destruction does not wait for the command thread's other tasks.
TEST_F(QueuePairs, WaitsForNothingElse) {
  Group* group = world_.make_group(cq_);
  world_.let_go(group);
  bool other = false;
  commands_.run(0, [&] { other = true; }, {});
  ASSERT_EQ(destroy_qp(group->handle()), 0);
  EXPECT_FALSE(other);
}

// The NIC keeps completions of QPs that are gone, as rxe does.
TEST_F(QueuePairs, NothingOfADestroyedQpIsLeftToBePolled) {
  world_.nic(kDefault).is_soft_roce = true;
  Group* group = world_.make_group(cq_);
  world_.let_go(group);
  FakeQp& nic = World::fake(group, kDefault);
  nic.flushes = false;  // the flush comes later
  group::park({&group, 1});
  group::Fence fence({group}, group::kPatience);
  worker_.run();
  ASSERT_FALSE(fence.step(group::Clock::now()));
  nic.flushes = true;
  nic.flush();
  send(1);
  ASSERT_TRUE(on_default().complete_send());
  ASSERT_EQ(World::fake(cq_, kDefault).waiting.size(), 3u);  // two markers before it
  fence.forget(group);
  ASSERT_EQ(destroy_qp(group->handle()), 0);
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_SUCCESS}}));
}

// A fence cannot begin before this thread's batch ends, so a call between them must not wait for
// it.
TEST_F(QueuePairs, AThreadThatBuildsABatchMayAskForTheState) {
  if (group::thread_slot_get() == nullptr) GTEST_SKIP() << "no membarrier(2) here";
  StockVerbs table = *stock;
  table.query_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int, ibv_qp_init_attr*) {
    attr->qp_state = qp->state;
    return 0;
  };
  const StockVerbs* const before = std::exchange(stock, &table);
  {
    std::lock_guard lock(group_->send.mutex);
    group_->send.adopt();
  }
  ASSERT_TRUE(group_->send.bias.enter_building(group::tls_slot, &group_->send));
  std::thread([&] { group::park({&group_, 1}); }).join();
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(query_qp(group_->handle(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  group::Bias::leave_building(group::tls_slot);
  EXPECT_TRUE(group::batch_is_over(*group_));
  stock = before;
}

// Nothing of a QP that was reset is left either: the QP is used again.
TEST_F(QueuePairs, NothingFromBeforeAResetIsLeftToBePolled) {
  send(1);
  ASSERT_TRUE(on_default().complete_send());
  StockVerbs table = *stock;
  table.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int) {
    qp->state = attr->qp_state;
    return 0;
  };
  const StockVerbs* const before = std::exchange(stock, &table);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE), 0);
  stock = before;
  EXPECT_EQ(poll(), Completions{});
  EXPECT_EQ(group_->counters.done[0], 0u);
}

class Refused : public QueuePairs {
 protected:
  Refused() {
    send(1);
    EXPECT_TRUE(group::fence({group_})[0]);
    EXPECT_EQ(group::commit(*group_, kBackup, kBackup), group::Commit::kDone);
    EXPECT_EQ(group::replay(*group_, 0).refusal, nullptr);
  }
  FakeQp& on_backup() { return World::fake(group_, kBackup); }
};

// The default NIC is dead, and the QP is on another NIC.
TEST_F(Refused, AResetLeavesAQpInError) {
  on_default().modify_error = EIO;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  EXPECT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE), EIO);
  ASSERT_NE(group_->real[kBackup], nullptr);
  EXPECT_TRUE(on_backup().in_error());  // C3
  send(2);
  receive(11);
  EXPECT_EQ(poll(), (Completions{{1, kFlushed}, {2, kFlushed}, {11, kFlushed}}));
  ibv_qp_init_attr init{};
  ASSERT_EQ(query_qp(group_->handle(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
}

// C9: the NIC has brought its QP to ERR, or the layer does so for a fence, while the program asks.
TEST_F(QueuePairs, AQueryShowsNothingOfAFaultThatIsMasked) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  on_default().qp.state = IBV_QPS_ERR;
  ASSERT_EQ(query_qp(group_->handle(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(group_->handle()->state, IBV_QPS_RTS);
  on_default().query_error = EIO;
  ASSERT_EQ(query_qp(group_->handle(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  on_default().query_error = 0;
  group_->life.errors.members[kDefault].accept = group::Accept::kPass;  // it is not masked any more
  ASSERT_EQ(query_qp(group_->handle(), &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(group_->handle()->state, IBV_QPS_ERR);
}

// An outage may last for hours, and no NIC holds the QP then.
TEST_F(QueuePairs, AQueryDoesNotWaitForAPath) {
  group_->life.asked.attr.timeout = 18;
  group_->life.asked.mask |= IBV_QP_TIMEOUT;
  ASSERT_TRUE(group::fence({group_})[0]);
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(query_qp(group_->handle(), &attr, IBV_QP_STATE | IBV_QP_TIMEOUT, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.timeout, 18);
  EXPECT_EQ(attr.cap.max_send_wr, group_->cap.max_send_wr);
}

TEST_F(QueuePairs, TheNicsRefusalOfAQueryIsTheApplications) {
  on_default().query_error = EPERM;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  ibv_qp_init_attr init{};
  EXPECT_EQ(query_qp(group_->handle(), &attr, IBV_QP_STATE, &init), EPERM);
  EXPECT_EQ(attr.qp_state, IBV_QPS_SQD) << "nothing is shown";
}

TEST_F(Refused, AResetFlushesOnce) {
  on_default().modify_error = EIO;
  ASSERT_TRUE(group::fence({group_})[0]);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  for (int i = 0; i < 2; i++) {
    EXPECT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE), EIO);
  }
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_RETRY_EXC_ERR}}));
}

TEST_F(Refused, AnEndChangesNothingButTheProtection) {
  StockVerbs table = *stock;
  table.destroy_qp = [](ibv_qp*) { return EBUSY; };
  const StockVerbs* const before = std::exchange(stock, &table);
  EXPECT_EQ(destroy_qp(group_->handle()), EBUSY);
  stock = before;
  ASSERT_NE(group_->real[kBackup], nullptr);
  send(2);
  ASSERT_TRUE(on_backup().complete_send());
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_SUCCESS}}));
  on_backup().break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(poll(), (Completions{{2, IBV_WC_RETRY_EXC_ERR}}));
}

// The QP failed while no path was chosen.
TEST_F(QueuePairs, WhatHasFailedBetweenTwoPathsIsToldOnce) {
  send(1);
  ASSERT_TRUE(group::fence({group_})[0]);
  ASSERT_EQ(group_->life.path.member, group::kNoMember);
  EXPECT_FALSE(group::errors_pass(*group_, group_->life.path.member));
  group::fail(*group_);
  to_error();
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_RETRY_EXC_ERR}}));
}

// The program polls the NIC's own CQ from now on, so the layer cannot see its completions.
TEST_F(QueuePairs, LoseTheirProtectionWithTheirCompletionQueue) {
  World::Options options;
  options.guarded = false;
  CompletionQueue *cq = world_.make_cq(), *other_cq = world_.make_cq();
  Group* whole = world_.make_group(cq, cq, options);
  Group* half = world_.make_group(other_cq, cq, options);
  Group* none = world_.make_group(other_cq, other_cq, options);
  EXPECT_TRUE(let_go(&cq->cq));
  EXPECT_TRUE(whole->let_go);
  EXPECT_TRUE(half->let_go);
  EXPECT_FALSE(none->let_go);
  Group late;
  cq_join(*other_cq, late);
  EXPECT_FALSE(late.let_go);
  cq_join(*cq, late);
  EXPECT_TRUE(late.let_go);
  for (CompletionQueue* queue : {cq, other_cq}) std::erase(queue->groups, &late);
}

TEST_F(QueuePairs, LoseTheirProtectionOnlyOnTheDefault) {
  EXPECT_TRUE(let_go(group_->handle()));
  EXPECT_TRUE(group_->let_go);
  EXPECT_TRUE(let_go(group_->handle())) << "it is so already";
}

TEST_F(OffTheDefault, KeepTheirProtection) {
  EXPECT_FALSE(let_go(group_->handle()));
  EXPECT_FALSE(group_->let_go);
}

// A program that polls the default NIC's own CQ would wait for completions that are on another NIC.
TEST_F(QueuePairs, KeepTheirCompletionQueueWhileOneIsAwayFromTheDefault) {
  Group* away = world_.make_group(cq_);
  ASSERT_TRUE(group::fence({away})[0]);
  EXPECT_FALSE(let_go(&cq_->cq));
  EXPECT_FALSE(group_->let_go);
  Group late;
  cq_join(*cq_, late);
  EXPECT_FALSE(late.let_go);
  std::erase(cq_->groups, &late);
}

// librdmacm names a QP by its address for as long as the connection's id lives.
TEST_F(QueuePairs, ThatAreGoneAreAskedAboutWithoutALookBehindTheirAddress) {
  context_is_open(&world_.context);
  Group* group = world_.make_group(cq_);
  world_.let_go(group);
  ibv_qp* handle = group->handle();
  EXPECT_TRUE(is_protected(handle));
  EXPECT_FALSE(has_left(handle));
  group->life.path.departures = 1;
  EXPECT_TRUE(has_left(handle));
  EXPECT_EQ(destroy_qp(handle), 0);
  void* unmapped = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (const ibv_qp* gone : {handle, static_cast<ibv_qp*>(unmapped)}) {
    EXPECT_FALSE(is_protected(gone));
    EXPECT_FALSE(has_left(gone));
  }
  munmap(unmapped, 4096);
  context_is_closed(&world_.context);
}

// The new group gets the number of an unprotected QP that is gone, and of which the application has
// polled a completion.
TEST_F(QueuePairs, CountsUnderANumberThatWasNobodys) {
  StockVerbs table = *stock;
  table.free_device_list = [](ibv_device**) {};
  const StockVerbs* const before = std::exchange(stock, &table);
  ibv_device* real[] = {&world_.nic(kDefault).device, &world_.nic(kBackup).device};
  ibv_device** shown = device_list_wrap(real, 2);
  ASSERT_NE(shown, nullptr);
  ibv_device* const device = std::exchange(world_.context.verbs.context.device, shown[0]);

  ibv_cq* beneath = cq_->real[kDefault];
  ibv_wc wc{};
  wc.wr_id = 5;
  wc.qp_num = world_.nic(kDefault).qp_make(beneath, beneath, false).qp.qp_num + 1;
  EXPECT_EQ(poll(), Completions{});  // the thread becomes the owner
  World::fake(cq_, kDefault).waiting.push_back(wc);
  EXPECT_EQ(poll(), (Completions{{5, IBV_WC_SUCCESS}}));
  ASSERT_EQ(cq_->last_qpn, wc.qp_num);

  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = &cq_->cq;
  init.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = create_qp(&world_.pd.pd, &init);
  ASSERT_NE(qp, nullptr);
  ASSERT_EQ(qp->qp_num, wc.qp_num);
  Group* const other = std::exchange(group_, Group::from(qp));
  send(1);
  ASSERT_TRUE(on_default().complete_send());
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_SUCCESS}}));
  EXPECT_EQ(group_->counters.done[0], 1u);

  group_ = other;
  EXPECT_EQ(destroy_qp(qp), 0);
  device_list_free(shown);
  world_.context.verbs.context.device = device;
  stock = before;
}

// A QP on a shared receive queue that has two receives.
class SharedReceives : public QueuePairs {
 protected:
  SharedReceives() {
    World::Options options;
    options.srq = srq_;
    group_ = world_.make_group(cq_, cq_, options);
    ibv_sge sge{0x6000, 8, group::kLkey};
    for (uint64_t id : {1u, 2u}) {
      ibv_recv_wr wr{id, nullptr, &sge, 1}, *bad;
      EXPECT_EQ(srq_->post(&wr, &bad), 0);
    }
  }
  void go_to_backup() {
    group::receives_last_taken(*group_, kDefault);
    ASSERT_TRUE(group::fence({group_})[0]);
    ASSERT_EQ(group::commit(*group_, kBackup, kBackup), group::Commit::kDone);
    ASSERT_EQ(group::replay(*group_, 0).refusal, nullptr);
  }
  // `count` messages arrive on `member`, and the application has not polled them.
  void take(int member, int count) {
    for (; count > 0; count--) ASSERT_TRUE(World::fake(group_, member).complete_recv());
  }
  void destroy() {
    world_.let_go(group_);
    ASSERT_EQ(destroy_qp(group_->handle()), 0);
  }
  void reset() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE), 0);
  }
  void expect_left(uint32_t receives) {
    EXPECT_EQ(poll(), Completions{});
    EXPECT_EQ(srq_->live, receives);
    uint32_t posted = 0;
    for (const auto& one : srq_->members) posted += one.posted;
    EXPECT_EQ(posted + srq_->waiting.size(), receives);
  }

  group::SharedQueue* srq_ = world_.make_srq(16);
};

// The NIC drops the QP's completions, and with them those of the receives that the QP took.
TEST_F(SharedReceives, ThatWereTakenAreNoLongerPostedBehindAReset) {
  take(kDefault, 2);
  reset();
  expect_left(0);
}

TEST_F(SharedReceives, ThatWereTakenAreNoLongerPostedBehindAResetOffTheDefault) {
  go_to_backup();
  take(kBackup, 2);
  reset();
  expect_left(0);
}

TEST_F(SharedReceives, ThatWereTakenAreNoLongerPostedBehindTheEnd) {
  take(kDefault, 1);
  destroy();
  expect_left(1);
}

TEST_F(SharedReceives, ThatWereTakenAreNoLongerPostedBehindTheEndOffTheDefault) {
  go_to_backup();
  take(kBackup, 1);
  destroy();
  expect_left(1);
}

// The layer would not learn of a receive that the QP takes until it is gone.
TEST_F(SharedReceives, AreNotTakenAnyMoreWhenAQpIsDestroyed) {
  static std::vector<ibv_qp_state> states;
  static group::Context* context;
  static int heard;
  states.clear();
  context = &world_.context;
  heard = 0;
  ASSERT_TRUE(context->events.open());
  ASSERT_EQ(fcntl(context->events.fd(), F_SETFL, O_NONBLOCK), 0);
  group_->life.control.state = fsm::State::kClosed;  // the state that the coordinator gives it
  StockVerbs table = *stock;
  table.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int) {
    qp->state = attr->qp_state;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
    event.element.qp = qp;
    if (qp->context == context->members[kDefault].real)
      coordinator().device_event(context, kDefault, event);
    return 0;
  };
  table.destroy_qp = [](ibv_qp* qp) {
    states.push_back(qp->state);
    ibv_async_event event;
    heard += context->events.get(&event) == 0;
    return 0;
  };
  const StockVerbs* const before = std::exchange(stock, &table);
  destroy();
  control_.run_timers();
  worker_.run();
  stock = before;
  ASSERT_EQ(states.size(), 3u);
  EXPECT_EQ(states[kDefault], IBV_QPS_ERR) << "the others have taken none";
  EXPECT_EQ(heard, 0) << "the application has not asked for this";
}

// A thread follows LAST_WQE_REACHED while another destroys the QP.
TEST_F(QueuePairs, IsNotDestroyedWhileAnEventIsFollowed) {
  World::Options options;
  options.srq = world_.make_srq(16);
  Group* group = world_.make_group(cq_, cq_, options);
  world_.let_go(group);
  group->life.control.state = fsm::State::kFailed;  // a failed group waits for the event

  ibv_async_event event{};
  event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
  event.element.qp = group->real[kDefault];
  std::unique_lock stop(group->srq->mutex);  // the follower needs this mutex, too
  std::atomic<pid_t> thread{0};
  std::thread follower([&] {
    thread = gettid();
    coordinator_.device_event(&world_.context, kDefault, event);
  });
  while (thread == 0 || !group::is_asleep(thread)) sched_yield();

  int error = -1;
  std::thread destroyer([&] { error = destroy_qp(group->handle()); });
  auto is_listed = [&] {
    std::unique_lock lock(world_.context.mutex, std::try_to_lock);
    return !lock.owns_lock() || std::ranges::count(world_.context.groups, group) != 0;
  };
  // Either the group leaves the list (a fault), or the destroyer waits for the follower.
  while (is_listed() && !world_.context.event_mutex.has_waiters()) sched_yield();
  EXPECT_TRUE(is_listed());
  stop.unlock();
  follower.join();
  destroyer.join();
  EXPECT_EQ(error, 0);
  EXPECT_FALSE(is_listed());
}

}  // namespace
}  // namespace shift::ops
