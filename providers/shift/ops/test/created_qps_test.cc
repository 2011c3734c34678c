// Which QPs are protected. The others are the default NIC's own (C10).
#include <array>

#include "group/group.h"
#include "ops/create_qp.h"
#include "ops/test/opened.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::FakeQp;
using group::Group;
using group::SharedQueue;

class CreatedQps : public Opened {
 protected:
  void SetUp() override {
    Opened::SetUp();
    pd_ = alloc_pd(context_);
    send_cq_ = create_cq(context_, 16, nullptr, nullptr, 0);
    recv_cq_ = create_cq(context_, 16, nullptr, nullptr, 0);
    worker_.run();
    init_.send_cq = send_cq_;
    init_.recv_cq = recv_cq_;
    init_.qp_type = IBV_QPT_RC;
    init_.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
    static_cast<void>(std::copy_n(reinterpret_cast<const char*>(&init_), sizeof init_,
                                  reinterpret_cast<char*>(&extended_)));
    extended_.comp_mask = IBV_QP_INIT_ATTR_PD;
    extended_.pd = pd_;
    first_.verbs.create_qp_ex = [](ibv_context*, ibv_qp_init_attr_ex* init) -> ibv_qp* {
      if (refusal("create_qp") != 0) return nullptr;
      asked_pd = init->pd;
      ibv_qp_init_attr classic{};
      classic.send_cq = init->send_cq;
      classic.recv_cq = init->recv_cq;
      classic.srq = init->srq;
      classic.sq_sig_all = init->sq_sig_all;
      return group::fake_stock()->create_qp(&nics.front()->pd, &classic);
    };
    table_.create_qp = [](ibv_pd* pd, ibv_qp_init_attr* init) -> ibv_qp* {
      if (refusal("create_qp") != 0) return nullptr;
      return group::fake_stock()->create_qp(pd, init);
    };
    table_.qp_to_qp_ex = [](ibv_qp*) -> ibv_qp_ex* { return &builder; };
  }
  void TearDown() override {
    EXPECT_EQ(destroy_cq(send_cq_), 0) << "no QP is left on it";
    EXPECT_EQ(destroy_cq(recv_cq_), 0);
    EXPECT_EQ(dealloc_pd(pd_), 0);
  }
  // Says whether `qp` is protected, and destroys it.
  bool is_protected_qp(ibv_qp* qp) {
    EXPECT_NE(qp, nullptr);
    if (qp == nullptr) return false;
    const bool is_ours = owns(qp->context);
    EXPECT_EQ(is_ours ? destroy_qp(qp) : stock->destroy_qp(qp), 0);
    return is_ours;
  }
  bool makes_protected() { return is_protected_qp(create_qp(pd_, &init_)); }
  bool makes_protected_ex() { return is_protected_qp(create_qp_ex(context_, &extended_)); }
  ibv_srq* shared_make() {
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 8, .max_sge = 1, .srq_limit = 0};
    ibv_srq* srq = create_srq(pd_, &attr);
    worker_.run();
    return srq;
  }

  static inline ibv_pd* asked_pd;
  static inline ibv_qp_ex builder;
  ibv_pd* pd_ = nullptr;
  ibv_cq *send_cq_ = nullptr, *recv_cq_ = nullptr;
  ibv_qp_init_attr init_{};
  ibv_qp_init_attr_ex extended_{};
};

TEST_F(CreatedQps, ReliableOnesAreProtected) {
  int mark = 0;
  init_.qp_context = &mark;
  init_.sq_sig_all = 1;
  ibv_qp* qp = create_qp(pd_, &init_);
  ASSERT_NE(qp, nullptr);
  Group& group = *Group::from(qp);
  EXPECT_EQ(qp->context, context_);
  EXPECT_EQ(qp->qp_context, &mark);
  EXPECT_EQ(qp->pd, pd_);
  EXPECT_EQ(qp->send_cq, send_cq_);
  EXPECT_EQ(qp->recv_cq, recv_cq_);
  EXPECT_EQ(qp->qp_num, group.real[kDefault]->qp_num);
  EXPECT_TRUE(group.sq_sig_all);
  EXPECT_EQ(group.mode, Mode::kRelaxed);
  EXPECT_EQ(FakeQp::of(group.real[kDefault]).recv_cq,
            &group::FakeCq::of(CompletionQueue::from(recv_cq_)->real[kDefault]));
  EXPECT_EQ(destroy_cq(send_cq_), EBUSY);
  EXPECT_EQ(destroy_cq(recv_cq_), EBUSY);
  EXPECT_EQ(dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(destroy_qp(qp), 0);
}

// A dead NIC makes no QPs. Another one's give the number, and may have the numbers of older QPs.
TEST_F(CreatedQps, HaveNumbersOfTheirOwnWhenTheNicIsDead) {
  static uint32_t taken;
  static int made;
  made = 0;
  ibv_qp* older = create_qp(pd_, &init_);
  ASSERT_NE(older, nullptr);
  taken = older->qp_num;
  context().members[kDefault].dead = true;
  // The deputy's context and the other member's are one object here.
  table_.close_device = [](ibv_context* c) {
    return static_cast<int>(live["context"].erase(c) * 0);
  };
  table_.create_qp = [](ibv_pd* pd, ibv_qp_init_attr* init) -> ibv_qp* {
    ibv_qp* qp = group::fake_stock()->create_qp(pd, init);
    if (made++ < 2) qp->qp_num = taken;
    return qp;
  };
  ibv_qp* younger = create_qp(pd_, &init_);
  ASSERT_NE(younger, nullptr);
  EXPECT_NE(younger->qp_num, taken);
  EXPECT_EQ(destroy_qp(younger), 0);
  EXPECT_EQ(destroy_qp(older), 0);
}

// A fence flushes all requests, also those without a signal, for which the program needs no room.
class CqRoom : public CreatedQps {
 protected:
  ibv_qp* make(uint32_t sends, uint32_t receives) {
    init_.cap.max_send_wr = sends;
    init_.cap.max_recv_wr = receives;
    ibv_qp* qp = create_qp(pd_, &init_);
    worker_.run();
    return qp;
  }
  static int room(ibv_cq* cq, int member = kDefault) {
    return CompletionQueue::from(cq)->real[member]->cqe;
  }
  static bool is_let_go(ibv_qp* qp) { return Group::from(qp)->let_go; }
};

TEST_F(CqRoom, IsEnoughWhereTheProgramHasRoomForAll) {
  refusals["resize_cq"] = EOPNOTSUPP;  // nothing is asked of the NIC
  ibv_qp* one = make(10, 10);
  ibv_qp* two = make(6, 6);
  EXPECT_EQ(room(send_cq_), 32);
  EXPECT_FALSE(is_let_go(one) || is_let_go(two));
  EXPECT_EQ(destroy_qp(one), 0);
  EXPECT_EQ(destroy_qp(two), 0);
}

TEST_F(CqRoom, GrowsOnEachNicWithTheQpsAndIsNotShown) {
  ibv_qp* one = make(100, 20);
  for (const int member : {int{kDefault}, int{kBackup}}) {
    EXPECT_EQ(room(send_cq_, member), 116);
    EXPECT_EQ(room(recv_cq_, member), 64) << "it grows in few steps";
  }
  ibv_qp* two = make(100, 20);
  EXPECT_GE(room(send_cq_), 216);
  EXPECT_EQ(room(recv_cq_), 64);
  EXPECT_EQ(send_cq_->cqe, 16);
  EXPECT_EQ(destroy_qp(one), 0);
  EXPECT_EQ(destroy_qp(two), 0);
  const int before = room(send_cq_);
  ibv_qp* three = make(150, 4);
  EXPECT_EQ(room(send_cq_), before) << "the room of those that are gone serves again";
  EXPECT_EQ(destroy_qp(three), 0);
}

TEST_F(CqRoom, OfOneQueueForBothIsForBoth) {
  init_.recv_cq = send_cq_;
  ibv_qp* qp = make(100, 100);
  EXPECT_GE(room(send_cq_), 216);
  EXPECT_EQ(destroy_qp(qp), 0);
  EXPECT_EQ(CompletionQueue::from(send_cq_)->flushable, 0);
}

TEST_F(CqRoom, StaysWhenTheProgramChangesTheSize) {
  ibv_qp* qp = make(100, 4);
  EXPECT_EQ(resize_cq(send_cq_, 8), 0);
  worker_.run();
  EXPECT_EQ(send_cq_->cqe, 8);
  EXPECT_EQ(room(send_cq_), 108);
  EXPECT_EQ(room(send_cq_, kBackup), 108);
  EXPECT_EQ(resize_cq(send_cq_, 200), 0);
  EXPECT_EQ(send_cq_->cqe, 200);
  EXPECT_EQ(room(send_cq_), 400);
  EXPECT_EQ(destroy_qp(qp), 0);
}

TEST_F(CqRoom, ThatTheNicCannotMakeLeavesTheQpUnprotected) {
  ibv_qp* qp = make(990, 4);
  EXPECT_FALSE(is_let_go(qp)) << "it is the most that the NIC can make";
  EXPECT_EQ(room(send_cq_), 1000);
  ibv_qp* more = make(20, 4);
  EXPECT_TRUE(is_let_go(more));
  EXPECT_EQ(destroy_qp(qp), 0);
  ibv_qp* again = make(20, 4);
  EXPECT_FALSE(is_let_go(again));
  EXPECT_EQ(destroy_qp(more), 0);
  EXPECT_EQ(destroy_qp(again), 0);
  for (ibv_cq* cq : {send_cq_, recv_cq_}) EXPECT_EQ(CompletionQueue::from(cq)->flushable, 0);
}

TEST_F(CqRoom, OfANicThatCannotResizeIsWhatThereIs) {
  refusals["resize_cq"] = EOPNOTSUPP;
  ibv_qp* fits = make(32, 4);
  EXPECT_FALSE(is_let_go(fits));
  ibv_qp* more = make(1, 4);
  EXPECT_TRUE(is_let_go(more));
  EXPECT_EQ(destroy_qp(fits), 0);
  EXPECT_EQ(destroy_qp(more), 0);
}

// The NICs keep a request's place until its completion is polled.
class CqRoomByPlaces : public CqRoom {
 protected:
  CqRoomByPlaces() {
    static constexpr WorkRingTable kRings{.size = sizeof(WorkRingTable),
                                          .knows = [](ibv_device*) { return true; },
                                          .open = [](ibv_qp*, WorkRings*) { return false; }};
    table_.work_rings = &kRings;
  }
  void make_other_kind() {
    init_.qp_type = IBV_QPT_UD;
    EXPECT_FALSE(makes_protected());
    init_.qp_type = IBV_QPT_RC;
    worker_.run();
  }
};

TEST_F(CqRoomByPlaces, IsWhatTheProgramAskedForWhereTheQueuesFit) {
  refusals["resize_cq"] = EOPNOTSUPP;
  ibv_qp* one = make(10, 10);
  ibv_qp* two = make(6, 6);
  for (const int member : {int{kDefault}, int{kBackup}}) EXPECT_EQ(room(send_cq_, member), 16);
  EXPECT_EQ(send_cq_->cqe, 16);
  EXPECT_FALSE(is_let_go(one) || is_let_go(two));
  EXPECT_EQ(destroy_qp(one), 0);
  EXPECT_EQ(destroy_qp(two), 0);
}

TEST_F(CqRoomByPlaces, GrowsToThePlacesOfItsQueues) {
  ibv_qp* one = make(100, 20);
  ibv_qp* two = make(100, 4);
  for (const int member : {int{kDefault}, int{kBackup}}) {
    EXPECT_EQ(room(send_cq_, member), 200);
    EXPECT_EQ(room(recv_cq_, member), 32);
  }
  EXPECT_EQ(send_cq_->cqe, 16);
  EXPECT_EQ(resize_cq(send_cq_, 150), 0);
  EXPECT_EQ(room(send_cq_), 200);
  EXPECT_EQ(send_cq_->cqe, 150);
  EXPECT_EQ(destroy_qp(one), 0);
  EXPECT_EQ(destroy_qp(two), 0);
}

// As many of their completions as the program asked for may wait beside those of a fence.
TEST_F(CqRoomByPlaces, IsForOtherKindsToo) {
  make_other_kind();
  EXPECT_EQ(room(send_cq_), 16) << "without a protected QP nothing is fenced";
  ibv_qp* one = make(100, 4);
  EXPECT_EQ(room(send_cq_), 116);
  EXPECT_EQ(destroy_qp(one), 0);
}

TEST_F(CqRoomByPlaces, GrowsWhenAnotherKindComesLater) {
  ibv_qp* one = make(100, 4);
  EXPECT_EQ(room(send_cq_), 100);
  make_other_kind();
  EXPECT_GE(room(send_cq_), 116);
  EXPECT_GE(room(send_cq_, kBackup), 116);
  EXPECT_EQ(destroy_qp(one), 0);
}

TEST_F(CqRoomByPlaces, IsForWorkQueuesToo) {
  first_.verbs.create_wq = [](ibv_context*, ibv_wq_init_attr*) -> ibv_wq* { return nullptr; };
  ibv_qp* one = make(100, 4);
  ibv_wq_init_attr attr{};
  attr.pd = pd_;
  attr.cq = send_cq_;
  EXPECT_EQ(verbs_get_ctx(context_)->create_wq(context_, &attr), nullptr);
  worker_.run();
  EXPECT_GE(room(send_cq_), 116);
  EXPECT_EQ(destroy_qp(one), 0);
}

TEST_F(CqRoomByPlaces, IsForASharedQueuesReceivesToo) {
  ibv_srq* srq = shared_make();
  init_.srq = srq;
  ibv_qp* one = make(4, 0);
  EXPECT_GE(room(recv_cq_), 17);
  EXPECT_EQ(room(send_cq_), 16);
  EXPECT_EQ(destroy_qp(one), 0);
  EXPECT_EQ(destroy_srq(srq), 0);
}

TEST_F(CreatedQps, OtherKindsAreTheNicsOwn) {
  for (ibv_qp_type type : {IBV_QPT_UD, IBV_QPT_UC, IBV_QPT_RAW_PACKET}) {
    init_.qp_type = extended_.qp_type = type;
    EXPECT_FALSE(makes_protected()) << type;
    EXPECT_FALSE(makes_protected_ex()) << type;
  }
}

TEST_F(CreatedQps, WithoutBothQueuesAreTheNicsOwn) {
  ibv_cq* const theirs = CompletionQueue::from(send_cq_)->real[kDefault];
  for (auto queue : {&ibv_qp_init_attr::send_cq, &ibv_qp_init_attr::recv_cq}) {
    ibv_cq* const before = std::exchange(init_.*queue, theirs);
    EXPECT_FALSE(makes_protected());
    init_.*queue = before;
  }
  EXPECT_TRUE(makes_protected());
}

TEST_F(CreatedQps, ThatTheNicRefusesLeaveNothingBehind) {
  ibv_srq* srq = shared_make();
  refusals["create_qp"] = ENOSPC;
  init_.srq = extended_.srq = srq;
  EXPECT_EQ(create_qp(pd_, &init_), nullptr);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(create_qp_ex(context_, &extended_), nullptr);
  EXPECT_EQ(SharedQueue::from(srq)->users, 0);
  init_.qp_type = IBV_QPT_UD;
  init_.srq = nullptr;
  EXPECT_EQ(create_qp(pd_, &init_), nullptr);
  EXPECT_EQ(destroy_srq(srq), 0);
}

// C10: a shared queue serves either protected QPs or unprotected ones.
TEST_F(CreatedQps, OnASharedQueueAreAllOfOneKind) {
  ibv_srq* srq = shared_make();
  CompletionQueue& polled = *CompletionQueue::from(recv_cq_);
  init_.srq = srq;
  ibv_qp* qp = create_qp(pd_, &init_);
  ASSERT_NE(qp, nullptr);
  EXPECT_TRUE(owns(qp->context));
  EXPECT_EQ(SharedQueue::from(srq)->users, 1);
  EXPECT_EQ(polled.slow_groups, 1) << "the receives' numbers are replaced";
  init_.qp_type = IBV_QPT_UD;
  EXPECT_EQ(create_qp(pd_, &init_), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(destroy_qp(qp), 0);
  EXPECT_EQ(polled.slow_groups, 0);
  EXPECT_EQ(SharedQueue::from(srq)->users, 0);
  // The first unprotected QP decides for ever.
  EXPECT_FALSE(makes_protected());
  EXPECT_EQ(polled.slow_groups, 1) << "nobody tells when such a QP goes";
  init_.qp_type = IBV_QPT_RC;
  EXPECT_FALSE(makes_protected());
  EXPECT_EQ(SharedQueue::from(srq)->users, 0);
  EXPECT_EQ(destroy_srq(srq), 0);
}

TEST_F(CreatedQps, OnASharedQueueOfTheNicsOwnAreNotProtected) {
  ibv_srq* srq = shared_make();
  init_.srq = SharedQueue::from(srq)->members[kDefault].real;
  EXPECT_FALSE(makes_protected());
  EXPECT_EQ(destroy_srq(srq), 0);
}

TEST_F(CreatedQps, ByTheExtendedCallAreProtectedToo) {
  EXPECT_TRUE(makes_protected_ex());
  EXPECT_EQ(asked_pd, virtual_pd(pd_)->real[kDefault]);
}

TEST_F(CreatedQps, ByTheExtendedCallNeedADomainOfTheLayer) {
  extended_.pd = nullptr;
  EXPECT_EQ(create_qp_ex(context_, &extended_), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  extended_.pd = virtual_pd(pd_)->real[kDefault];
  EXPECT_EQ(create_qp_ex(context_, &extended_), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // Without a domain the QP is an XRC receiver, or the NIC reports an error.
  extended_.comp_mask = 0;
  EXPECT_FALSE(makes_protected_ex());
}

TEST_F(CreatedQps, WithWhatTheLayerCannotMoveAreTheNicsOwn) {
  extended_.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
  EXPECT_FALSE(makes_protected_ex());
  extended_.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  extended_.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_INV << 1;
  EXPECT_FALSE(makes_protected_ex());
  extended_.send_ops_flags = IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE;
  EXPECT_TRUE(makes_protected_ex());
  // The layer does not look at fields that comp_mask does not name.
  extended_.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended_.send_ops_flags = ~uint64_t{0};
  EXPECT_TRUE(makes_protected_ex());
}

TEST_F(CreatedQps, HaveABuilderIfTheyAskForOne) {
  ibv_qp* qp = create_qp_ex(context_, &extended_);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp_to_qp_ex(qp), nullptr);
  EXPECT_EQ(destroy_qp(qp), 0);
  extended_.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  extended_.send_ops_flags = IBV_QP_EX_WITH_SEND;
  qp = create_qp_ex(context_, &extended_);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(qp_to_qp_ex(qp), &Group::from(qp)->qp);
  EXPECT_EQ(destroy_qp(qp), 0);
}

TEST_F(CreatedQps, ByDirectVerbsAreTheNicsOwn) {
  const auto make = [](ibv_context* real, ibv_qp_init_attr_ex* init, void* argument) -> ibv_qp* {
    EXPECT_EQ(argument, &asked_pd);
    return verbs_get_ctx(real)->create_qp_ex(real, init);
  };
  EXPECT_FALSE(is_protected_qp(create_unprotected_qp(context_, &extended_, make, &asked_pd)));
  EXPECT_EQ(asked_pd, virtual_pd(pd_)->real[kDefault]);
}

// ---- memory windows

class Windows : public CreatedQps {
 protected:
  void SetUp() override {
    CreatedQps::SetUp();
    ibv_context_ops& ops = first_.verbs.context.ops;
    ops.alloc_mw = [](ibv_pd* pd, ibv_mw_type type) -> ibv_mw* {
      if (refusal("alloc_mw") != 0) return nullptr;
      auto* mw = new ibv_mw{};
      mw->context = pd->context;
      mw->pd = pd;
      mw->type = type;
      return made("mw", mw);
    };
    ops.dealloc_mw = [](ibv_mw* mw) {
      EXPECT_EQ(mw->context, nics.front()->context()) << "the NIC knows its own only";
      if (const int error = gone("mw", mw)) return error;
      delete mw;
      return 0;
    };
    ops.bind_mw = [](ibv_qp*, ibv_mw* mw, ibv_mw_bind*) {
      if (const int error = refusal("bind_mw")) return error;
      mw->rkey = 0x77;
      return 0;
    };
  }
};

TEST_F(Windows, AreTheDefaultsAndNameTheProgramsObjects) {
  ibv_mw* mw = alloc_mw(pd_, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(mw->context, context_);
  EXPECT_EQ(mw->pd, pd_);
  EXPECT_EQ(dealloc_pd(pd_), EBUSY);
  refusals["mw"] = EBUSY;
  EXPECT_EQ(dealloc_mw(mw), EBUSY);
  EXPECT_EQ(mw->context, context_);
  EXPECT_EQ(mw->pd, pd_);
  refusals.clear();
  EXPECT_EQ(dealloc_mw(mw), 0);
}

// Each bind changes the last byte of a window's key, so no other byte may be that of a key which a
// peer takes for a region's.
TEST_F(Windows, GetNoNumberThatAPeerTakesForARegions) {
  static std::deque<uint32_t> numbers;
  numbers = {0x1201, 0x12ff, 0x1300};
  const auto alloc = std::exchange(first_.verbs.context.ops.alloc_mw, [](ibv_pd* pd, ibv_mw_type) {
    auto* mw = new ibv_mw{};
    mw->context = pd->context;
    mw->pd = pd;
    mw->rkey = numbers.front();
    numbers.pop_front();
    return made("mw", mw);
  });
  context().told_keys.tell(1, 0x1234);
  EXPECT_TRUE(context().told_keys.withdraw(0x1234));
  ibv_mw* mw = alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(mw->rkey, 0x1300u);
  EXPECT_EQ(live["mw"].size(), 1u);
  EXPECT_EQ(dealloc_mw(mw), 0);
  first_.verbs.context.ops.alloc_mw = alloc;
}

TEST_F(Windows, NeedANicThatHasThem) {
  refusals["alloc_mw"] = ENOSPC;
  EXPECT_EQ(alloc_mw(pd_, IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(errno, ENOSPC);
  first_.verbs.context.ops.alloc_mw = nullptr;
  EXPECT_EQ(alloc_mw(pd_, IBV_MW_TYPE_1), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// The provider turns a bind into a request, which completes among the QP's other requests.
TEST_F(Windows, AreBoundOnTheDefaultPathOnly) {
  ibv_mw* mw = alloc_mw(pd_, IBV_MW_TYPE_1);
  ibv_qp* qp = create_qp(pd_, &init_);
  ASSERT_NE(qp, nullptr);
  Group& group = *Group::from(qp);
  ibv_mw_bind bind{};
  bind.wr_id = 9;
  const uint64_t before = group.send.journal.head();
  refusals["bind_mw"] = ENOMEM;
  EXPECT_EQ(bind_mw(qp, mw, &bind), ENOMEM);
  EXPECT_EQ(group.send.journal.head(), before);
  refusals.clear();
  EXPECT_EQ(bind_mw(qp, mw, &bind), 0);
  EXPECT_EQ(group.send.journal.head(), before + 1);
  group.send.route = group::Route::kParked;
  EXPECT_EQ(bind_mw(qp, mw, &bind), EOPNOTSUPP);
  EXPECT_EQ(group.send.journal.head(), before + 1);
  group.send.route = group::Route::kOnDefault;
  // The journal keeps no bind on a QP that is the NIC's own.
  EXPECT_EQ(bind_mw(group.real[kDefault], mw, &bind), 0);
  EXPECT_EQ(group.send.journal.head(), before + 1);
  EXPECT_EQ(destroy_qp(qp), 0);
  EXPECT_EQ(dealloc_mw(mw), 0);
}

}  // namespace
}  // namespace shift::ops
