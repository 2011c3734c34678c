// An object that the application makes stands for one on each NIC, and goes from all NICs.
#include <thread>

#include "group/extended.h"
#include "group/group.h"
#include "ops/completion_queues.h"
#include "ops/create_qp.h"
#include "ops/domains.h"
#include "ops/test/opened.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;
using group::FakeCq;
using group::Group;
using group::ProtectionDomain;
using group::SharedQueue;

// ---- protection domains

using Domains = Opened;

TEST_F(Domains, AreOnEachNicAndGoFromAll) {
  ibv_pd* pd = alloc_pd(context_);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(pd->context, context_);
  EXPECT_EQ(count("pd"), 1u) << "the default's at once";
  worker_.run();
  EXPECT_EQ(count("pd"), 2u);
  EXPECT_EQ(dealloc_pd(pd), 0);
  EXPECT_EQ(count("pd"), 1u);
  reap();
  EXPECT_EQ(count("pd"), 0u);
}

TEST_F(Domains, StayWhileTheyAreUsedOrTheNicKeepsThem) {
  ibv_pd* pd = alloc_pd(context_);
  worker_.run();
  virtual_pd(pd)->users++;
  EXPECT_EQ(dealloc_pd(pd), EBUSY);
  virtual_pd(pd)->users--;
  refusals["pd"] = EBUSY;
  EXPECT_EQ(dealloc_pd(pd), EBUSY);
  EXPECT_EQ(count("pd"), 2u);
  refusals.clear();
  EXPECT_EQ(dealloc_pd(pd), 0);
}

TEST_F(Domains, ThatTheNicRefusesAreNotMade) {
  refusals["alloc_pd"] = ENOSPC;
  EXPECT_EQ(alloc_pd(context_), nullptr);
  EXPECT_EQ(errno, ENOSPC);
}

class ParentDomains : public Opened {
 protected:
  void SetUp() override {
    Opened::SetUp();
    first_.verbs.alloc_parent_domain = [](ibv_context* c, ibv_parent_domain_init_attr* attr) {
      asked = *attr;
      auto* pd = new ibv_pd{};
      pd->context = c;
      return made("pd", pd);
    };
    base_ = alloc_pd(context_);
    worker_.run();
    init_.pd = base_;
  }
  void TearDown() override {
    EXPECT_EQ(dealloc_pd(base_), 0);
    reap();
    EXPECT_EQ(count("pd"), 0u);
  }
  static void* own_alloc(ibv_pd* pd, void* told, size_t size, size_t, uint64_t) {
    told_pd = pd;
    told_context = told;
    return size == 1 ? IBV_ALLOCATOR_USE_DEFAULT : &told_pd;
  }
  static void own_free(ibv_pd* pd, void* told, void*, uint64_t) {
    told_pd = pd;
    told_context = told;
    freed++;
  }

  static inline ibv_parent_domain_init_attr asked;  // what the NIC was asked for
  static inline ibv_pd* told_pd;
  static inline void* told_context;
  static inline int freed;
  ibv_pd* base_ = nullptr;
  ibv_parent_domain_init_attr init_{};
};

TEST_F(ParentDomains, AreTheirBaseOnTheFurtherNics) {
  ibv_pd* pd = alloc_parent_domain(context_, &init_);
  ASSERT_NE(pd, nullptr);
  worker_.run();
  EXPECT_EQ(asked.pd, virtual_pd(base_)->real[kDefault]);
  EXPECT_EQ(pd->context, context_);
  EXPECT_EQ(virtual_pd(pd)->real[kBackup], virtual_pd(base_)->real[kBackup]);
  EXPECT_EQ(dealloc_pd(base_), EBUSY);
  EXPECT_EQ(count("pd"), 3u);
  EXPECT_EQ(dealloc_pd(pd), 0);
  EXPECT_EQ(count("pd"), 2u) << "those of the base";
}

TEST_F(ParentDomains, OfAParentDomainHaveItsBase) {
  ibv_pd* pd = alloc_parent_domain(context_, &init_);
  ASSERT_NE(pd, nullptr);
  init_.pd = pd;
  ibv_pd* grandchild = alloc_parent_domain(context_, &init_);
  ASSERT_NE(grandchild, nullptr);
  EXPECT_EQ(&virtual_pd(grandchild)->domain(), virtual_pd(base_));
  EXPECT_EQ(virtual_pd(base_)->users, 2);
  EXPECT_EQ(dealloc_pd(grandchild), 0);
  EXPECT_EQ(dealloc_pd(pd), 0);
}

TEST_F(ParentDomains, NeedADomainAndANicThatHasThem) {
  init_.pd = nullptr;
  EXPECT_EQ(alloc_parent_domain(context_, &init_), nullptr);
  EXPECT_EQ(errno, EINVAL);
  init_.pd = base_;
  first_.verbs.alloc_parent_domain = nullptr;
  EXPECT_EQ(alloc_parent_domain(context_, &init_), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// The NIC calls the layer's allocators with its own objects.
TEST_F(ParentDomains, TellTheProgramsAllocatorsItsOwnObjects) {
  int mark = 0;
  init_.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  init_.alloc = own_alloc;
  init_.free = own_free;
  init_.pd_context = &mark;
  ibv_pd* pd = alloc_parent_domain(context_, &init_);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(asked.alloc(virtual_pd(pd)->real[kDefault], asked.pd_context, 8, 8, 0), &told_pd);
  EXPECT_EQ(told_pd, pd);
  EXPECT_EQ(told_context, &mark);
  told_pd = nullptr;
  freed = 0;
  commands_.is_own_thread = false;
  asked.free(virtual_pd(pd)->real[kDefault], asked.pd_context, &mark, 0);
  EXPECT_EQ(freed, 1);
  EXPECT_EQ(told_pd, pd);
  // A thread of the layer does not run the program's code: a thread of the program does so later.
  commands_.is_own_thread = true;
  asked.free(virtual_pd(pd)->real[kDefault], asked.pd_context, &mark, 0);
  EXPECT_EQ(freed, 1);
  give_back_released(*virtual_pd(pd));
  give_back_released(*virtual_pd(pd));
  EXPECT_EQ(freed, 2);
  EXPECT_EQ(dealloc_pd(pd), 0);
}

TEST_F(ParentDomains, PassOnOnlyWhatTheProgramGave) {
  int mark = 0;
  init_.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  init_.alloc = own_alloc;
  init_.pd_context = &mark;  // comp_mask does not name it
  ibv_pd* pd = alloc_parent_domain(context_, &init_);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(asked.free, nullptr);
  asked.alloc(virtual_pd(pd)->real[kDefault], asked.pd_context, 8, 8, 0);
  EXPECT_EQ(told_context, nullptr);
  EXPECT_EQ(dealloc_pd(pd), 0);
  init_.comp_mask = 0;
  pd = alloc_parent_domain(context_, &init_);
  ASSERT_NE(pd, nullptr);
  EXPECT_EQ(asked.comp_mask, 0u);
  EXPECT_EQ(asked.alloc, init_.alloc) << "as it is, and nobody looks";
  EXPECT_EQ(dealloc_pd(pd), 0);
}

// ---- shared receive queues

class SharedQueues : public Opened {
 protected:
  void SetUp() override {
    Opened::SetUp();
    pd_ = alloc_pd(context_);
    worker_.run();
    init_.attr = {.max_wr = 20, .max_sge = 1, .srq_limit = 0};
  }
  void TearDown() override {
    worker_.run();
    EXPECT_EQ(dealloc_pd(pd_), 0) << "nothing is left on it";
  }
  int limit_set(ibv_srq* srq, uint32_t limit) {
    ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = limit};
    return modify_srq(srq, &attr, IBV_SRQ_LIMIT);
  }

  ibv_pd* pd_ = nullptr;
  ibv_srq_init_attr init_{};
};

TEST_F(SharedQueues, AreOnEachNicAndGoFromAll) {
  int mark = 0;
  init_.srq_context = &mark;
  ibv_srq* srq = create_srq(pd_, &init_);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(srq->context, context_);
  EXPECT_EQ(srq->srq_context, &mark);
  EXPECT_EQ(srq->pd, pd_);
  worker_.run();
  EXPECT_EQ(count("srq"), 2u);
  EXPECT_EQ(dealloc_pd(pd_), EBUSY);
  SharedQueue::from(srq)->users++;
  EXPECT_EQ(destroy_srq(srq), EBUSY);
  SharedQueue::from(srq)->users--;
  EXPECT_EQ(destroy_srq(srq), 0);
  reap();
  EXPECT_EQ(count("srq"), 0u);
  EXPECT_TRUE(context().srqs.empty());
}

TEST_F(SharedQueues, StayOnAllNicsWhenTheDefaultKeepsThem) {
  ibv_srq* srq = create_srq(pd_, &init_);
  worker_.run();
  refusals["srq"] = EBUSY;
  EXPECT_EQ(destroy_srq(srq), EBUSY);
  EXPECT_EQ(count("srq"), 2u);
  EXPECT_EQ(context().srqs.size(), 1u);
  // A dead NIC refuses everything, and keeps nothing.
  context().members[kDefault].dead = true;
  EXPECT_EQ(destroy_srq(srq), 0);
  EXPECT_TRUE(context().srqs.empty());
}

TEST_F(SharedQueues, HaveTheRoomThatTheNicMade) {
  ibv_srq* srq = create_srq(pd_, &init_);
  ibv_srq_attr attr{};
  ASSERT_EQ(query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.max_wr, 32u);
  EXPECT_EQ(attr.max_sge, 3u);
  EXPECT_EQ(destroy_srq(srq), 0);
  refusals["query_srq"] = EOPNOTSUPP;
  srq = create_srq(pd_, &init_);
  ASSERT_EQ(query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.max_wr, 20u) << "what was asked for: the NIC does not tell";
  EXPECT_EQ(destroy_srq(srq), 0);
}

TEST_F(SharedQueues, TakeALimitBelowTheirSizeAndShowIt) {
  ibv_srq* srq = create_srq(pd_, &init_);
  ibv_srq_attr attr{};
  attr.max_wr = 64;
  EXPECT_EQ(modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL) << "they keep their size";
  EXPECT_EQ(modify_srq(srq, &attr, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(limit_set(srq, 32), EINVAL);
  ASSERT_EQ(limit_set(srq, 31), 0);
  ASSERT_EQ(query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 31u);
  SharedQueue::from(srq)->limit_armed = false;  // the event of the limit has come
  ASSERT_EQ(query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0u);
  EXPECT_EQ(destroy_srq(srq), 0);
}

TEST_F(SharedQueues, ThatTheNicRefusesAreNotMade) {
  refusals["create_srq"] = ENOSPC;
  EXPECT_EQ(create_srq(pd_, &init_), nullptr);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_TRUE(context().srqs.empty());
}

// ---- completion queues

class Queues : public Opened {
 protected:
  int real_size(ibv_cq* cq, int member = kDefault) {
    return CompletionQueue::from(cq)->real[member]->cqe;
  }
};

TEST_F(Queues, HaveTwiceTheRoomWhichIsNotShown) {
  ibv_cq* cq = create_cq(context_, 100, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(cq->cqe, 100);
  EXPECT_EQ(real_size(cq), 200);
  worker_.run();
  EXPECT_EQ(real_size(cq, kBackup), 200);
  EXPECT_EQ(destroy_cq(cq), 0);
  EXPECT_TRUE(context().cqs.empty());
}

TEST_F(Queues, HaveNoMoreRoomThanTheNicCanMake) {
  const int sizes[][2] = {{1, 2}, {500, 1000}, {501, 501}, {1000, 1000}};
  for (const auto& [asked, real] : sizes) {
    ibv_cq* cq = create_cq(context_, asked, nullptr, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    EXPECT_EQ(real_size(cq), real) << asked;
    EXPECT_EQ(cq->cqe, asked);
    EXPECT_EQ(destroy_cq(cq), 0);
  }
}

// A NIC may hang while it changes a CQ, and nobody else may wait for it; and the program's
// completions stay where they are.
TEST_F(Queues, AreLeftAloneWhileTheyChange) {
  static CompletionQueue* queue;
  static bool looks;
  ibv_cq* cq = create_cq(context_, 100, nullptr, nullptr, 0);
  queue = CompletionQueue::from(cq);
  table_.resize_cq = [](ibv_cq*, int) {
    if (looks) group::inspect(*queue);
    return 0;
  };
  auto& real = group::FakeCq::of(queue->real[kDefault]);
  ibv_wc wc{};
  wc.qp_num = 0xdddd;  // of a QP that is not protected
  real.waiting.push_back(wc);
  looks = false;
  ASSERT_EQ(resize_cq(cq, 200), 0);
  EXPECT_EQ(real.waiting.size(), 1u);
  looks = true;  // as the control thread does
  ASSERT_EQ(resize_cq(cq, 300), 0);
  EXPECT_TRUE(real.waiting.empty()) << "it was not looked at, so it is afterwards";
  EXPECT_EQ(queue->side.size(), 1u);
  EXPECT_EQ(destroy_cq(cq), 0);
}

// One thread of the program polls the queue, and another makes a QP, for which the queue grows.
TEST_F(Queues, AreNotPolledByTheProgramWhileTheyChange) {
  static ibv_cq* cq;
  static int polled;
  cq = create_cq(context_, 100, nullptr, nullptr, 0);
  CompletionQueue* queue = CompletionQueue::from(cq);
  ibv_wc wc{};
  wc.qp_num = 0xdddd;
  // The second call would take the hot path.
  static const auto poll_twice = [] {
    ibv_wc found;
    polled = ops::poll_cq(cq, 1, &found) + ops::poll_cq(cq, 1, &found);
  };
  poll_twice();
  auto& real = group::FakeCq::of(queue->real[kDefault]);
  real.waiting.push_back(wc);
  table_.resize_cq = [](ibv_cq* one, int cqe) {
    std::thread(poll_twice).join();
    one->cqe = cqe;
    return 0;
  };
  ASSERT_TRUE(cq_reserve(*queue, 500));
  EXPECT_EQ(polled, 0);
  poll_twice();
  EXPECT_EQ(polled, 1) << "it was not looked at, so it is afterwards";
  EXPECT_EQ(destroy_cq(cq), 0);
}

// The command threads come to it when the program has destroyed the CQ already.
TEST_F(Queues, ThatAreGoneGetNoTwins) {
  static int made;
  made = 0;
  table_.create_cq = [](ibv_context* c, int cqe, void* owner, ibv_comp_channel* channel,
                        int vector) {
    made++;
    return group::fake_stock()->create_cq(c, cqe, owner, channel, vector);
  };
  ibv_cq* cq = create_cq(context_, 100, nullptr, nullptr, 0);
  EXPECT_EQ(destroy_cq(cq), 0);
  worker_.run();
  EXPECT_EQ(made, 1);
}

TEST_F(Queues, ChangeTheirSizeOnEachNic) {
  ibv_cq* cq = create_cq(context_, 100, nullptr, nullptr, 0);
  worker_.run();
  ASSERT_EQ(resize_cq(cq, 300), 0);
  EXPECT_EQ(cq->cqe, 300);
  EXPECT_EQ(real_size(cq), 600);
  worker_.run();
  EXPECT_EQ(real_size(cq, kBackup), 600);
  ASSERT_EQ(resize_cq(cq, 700), 0);
  EXPECT_EQ(cq->cqe, 700);
  EXPECT_EQ(real_size(cq), 700) << "twice as much the NIC could not make";
  EXPECT_EQ(destroy_cq(cq), 0);
}

// The second half of the room is for the layer: the program's completions must fit into the first
// half.
TEST_F(Queues, BecomeSmallerOnlyWhenTheProgramsCompletionsFit) {
  static std::vector<int> asked;
  asked.clear();
  ibv_cq* cq = create_cq(context_, 100, nullptr, nullptr, 0);
  table_.resize_cq = [](ibv_cq* real, int cqe) {
    asked.push_back(cqe);
    if (cqe < 60) return EINVAL;  // the CQ holds 60 completions
    real->cqe = cqe;
    return 0;
  };
  EXPECT_EQ(resize_cq(cq, 50), EINVAL);
  EXPECT_EQ(asked, (std::vector{50}));
  EXPECT_EQ(cq->cqe, 100);
  EXPECT_EQ(resize_cq(cq, 60), 0);
  EXPECT_EQ(asked, (std::vector{50, 60, 120}));
  EXPECT_EQ(cq->cqe, 60);
  asked.clear();
  EXPECT_EQ(resize_cq(cq, 60), 0);
  EXPECT_EQ(asked, (std::vector{120})) << "not smaller than it is";
  EXPECT_EQ(destroy_cq(cq), 0);
}

TEST_F(Queues, StayAsTheyAreWhenTheNicKeepsThem) {
  table_.destroy_cq = [](ibv_cq*) { return EBUSY; };
  ibv_cq* cq = create_cq(context_, 100, nullptr, nullptr, 0);
  worker_.run();
  EXPECT_EQ(destroy_cq(cq), EBUSY);
  EXPECT_TRUE(CompletionQueue::from(cq)->gives_events);
  EXPECT_EQ(context().cqs.size(), 1u);
  CompletionQueue::from(cq)->users++;
  table_.destroy_cq = [](ibv_cq*) { return 0; };
  EXPECT_EQ(destroy_cq(cq), EBUSY) << "a QP completes there";
  CompletionQueue::from(cq)->users--;
  EXPECT_EQ(destroy_cq(cq), 0);
}

TEST_F(Queues, OnAChannelKeepItBusy) {
  ibv_comp_channel* channel = create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  EXPECT_EQ(count("channel"), 4u) << "two watch, two are the application's";
  ibv_cq* cq = create_cq(context_, 10, nullptr, channel, 0);
  EXPECT_EQ(destroy_comp_channel(channel), EBUSY);
  EXPECT_EQ(destroy_cq(cq), 0);
  EXPECT_EQ(destroy_comp_channel(channel), 0);
  reap();
  EXPECT_EQ(count("channel"), 2u);
}

class ExtendedQueues : public Opened {
 protected:
  void SetUp() override {
    Opened::SetUp();
    first_.verbs.create_cq_ex = [](ibv_context* c, ibv_cq_init_attr_ex* attr) -> ibv_cq_ex* {
      if (refusal("create_cq_ex") != 0) return nullptr;
      asked = *attr;
      ibv_cq_ex& cq = cqs.emplace_back();
      cq = {};
      cq.context = c;
      cq.cqe = static_cast<int>(attr->cqe);
      return &cq;
    };
    first_.verbs.query_rt_values = [](ibv_context*, ibv_values_ex* values) {
      clock_reads++;
      values->raw_clock = {.tv_sec = 1, .tv_nsec = 5};
      return refusal("query_rt_values");
    };
    clock_reads = 0;
    init_.cqe = 100;
    init_.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
  }
  group::ExtendedPoll& poll(ibv_cq_ex* cq) { return *CompletionQueue::from(cq)->extended; }

  static inline ibv_cq_init_attr_ex asked;
  static inline std::deque<ibv_cq_ex> cqs;
  static inline int clock_reads;
  ibv_cq_init_attr_ex init_{};
};

TEST_F(ExtendedQueues, ReadOnlyWhatWasAskedFor) {
  ibv_cq_ex* cq = create_cq_ex(context_, &init_);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(cq->context, context_);
  EXPECT_EQ(cq->cqe, 100);
  EXPECT_EQ(asked.cqe, 200u);
  EXPECT_NE(cq->read_byte_len, nullptr);
  EXPECT_EQ(cq->read_imm_data, nullptr);
  // The layer itself reads these fields.
  EXPECT_EQ(asked.wc_flags & IBV_WC_STANDARD_FLAGS, uint64_t{IBV_WC_STANDARD_FLAGS});
  EXPECT_FALSE(poll(cq).needs_device);
  EXPECT_EQ(clock_reads, 0);
  EXPECT_EQ(destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(ExtendedQueues, WithTheNicsTimeReadItsClockOnce) {
  init_.wc_flags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* cq = create_cq_ex(context_, &init_);
  ASSERT_NE(cq, nullptr);
  EXPECT_TRUE(poll(cq).needs_device);
  EXPECT_EQ(clock_reads, 1);
  EXPECT_NE(cq->read_completion_ts, nullptr);
  EXPECT_EQ(destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  // The queue is made also when the NIC has no such call or refuses it.
  refusals["query_rt_values"] = EIO;
  cq = create_cq_ex(context_, &init_);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  first_.verbs.query_rt_values = nullptr;
  cq = create_cq_ex(context_, &init_);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(ExtendedQueues, UseTheirParentDomainOnTheDefault) {
  ibv_pd* pd = alloc_pd(context_);
  worker_.run();
  init_.parent_domain = pd;
  ibv_cq_ex* cq = create_cq_ex(context_, &init_);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(virtual_pd(pd)->users, 0) << "comp_mask does not name it";
  EXPECT_EQ(destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  init_.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  cq = create_cq_ex(context_, &init_);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(asked.parent_domain, virtual_pd(pd)->real[kDefault]);
  EXPECT_EQ(dealloc_pd(pd), EBUSY);
  EXPECT_EQ(destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  refusals["create_cq_ex"] = ENOSPC;
  EXPECT_EQ(create_cq_ex(context_, &init_), nullptr);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(dealloc_pd(pd), 0);
}

}  // namespace
}  // namespace shift::ops
