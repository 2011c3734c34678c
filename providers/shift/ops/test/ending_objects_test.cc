// The application destroys all objects of a context, one right after the other: they go from the
// further NICs in the same order, later, and before the context is closed.
#include <string>

#include "group/completion.h"
#include "group/member_qp.h"
#include "ops/create_qp.h"
#include "ops/test/opened.h"

namespace shift::ops {
namespace {

using group::CompletionQueue;

class EndingObjects : public Opened {
 protected:
  void SetUp() override {
    Opened::SetUp();
    calls.clear();
    table_.create_qp = group::fake_stock()->create_qp;
    table_.destroy_qp = [](ibv_qp* qp) {
      note("qp", qp->context);
      return group::fake_stock()->destroy_qp(qp);
    };
    table_.destroy_cq = [](ibv_cq* cq) {
      note("cq", cq->context);
      return 0;
    };
    table_.dealloc_pd = [](ibv_pd* pd) {
      note("pd", pd->context);
      live["pd"].erase(pd);
      delete pd;
      return 0;
    };
    table_.close_device = [](ibv_context* c) {
      note("context", c);
      return gone("context", c);
    };
    pd_ = alloc_pd(context_);
    cq_ = create_cq(context_, 16, nullptr, nullptr, 0);
    worker_.run();
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.qp_type = IBV_QPT_RC;
    init.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
    qp_ = create_qp(pd_, &init);
    ASSERT_NE(qp_, nullptr);
    ASSERT_EQ(group::member_qp_create(*group::Group::from(qp_), kBackup), 0);
    control_.waits = 0;
  }
  // Notes what is destroyed on the backup.
  static void note(const char* kind, const ibv_context* on) {
    if (on == nics[kBackup]->context()) calls.emplace_back(kind);
  }
  void destroy_all() {
    EXPECT_EQ(destroy_cq(cq_), EBUSY);
    EXPECT_EQ(dealloc_pd(pd_), EBUSY);
    EXPECT_EQ(destroy_qp(qp_), 0);
    EXPECT_EQ(destroy_cq(cq_), 0);
    EXPECT_EQ(dealloc_pd(pd_), 0);
    EXPECT_EQ(control_.waits, 0);
  }

  static inline std::vector<std::string> calls;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

TEST_F(EndingObjects, GoFromTheFurtherNicsInTheirOrder) {
  destroy_all();
  worker_.run();
  EXPECT_TRUE(calls.empty()) << "nothing may come before what is still to be forgotten";
  reap();
  EXPECT_EQ(calls, (std::vector<std::string>{"qp", "cq", "pd"}));
}

TEST_F(EndingObjects, AreGoneWhenTheContextIsClosed) {
  destroy_all();
  close();
  EXPECT_EQ(calls, (std::vector<std::string>{"qp", "cq", "pd", "context"}));
  EXPECT_EQ(count("pd"), 0u);
}

// What the QP's control thread looks at while the CQ is destroyed, and after it.
TEST_F(EndingObjects, TheirQueueIsNotPolledAnyMore) {
  static CompletionQueue* queue;
  static int polls;
  EXPECT_EQ(destroy_qp(qp_), 0);
  queue = CompletionQueue::from(cq_);
  const group::Held held(queue);
  first_.verbs.context.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return polls++, 0; };
  polls = 0;
  group::inspect(*queue);
  ASSERT_EQ(polls, 1);
  table_.destroy_cq = [](ibv_cq*) {
    group::inspect(*queue);
    return 0;
  };
  EXPECT_EQ(destroy_cq(cq_), 0);
  group::inspect(*held);
  EXPECT_EQ(polls, 1);
  EXPECT_EQ(dealloc_pd(pd_), 0);
}

TEST_F(EndingObjects, AQueueThatStaysIsLookedAtAgain) {
  static int polls;
  EXPECT_EQ(destroy_qp(qp_), 0);
  first_.verbs.context.ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return polls++, 0; };
  polls = 0;
  const auto destroys = table_.destroy_cq;
  table_.destroy_cq = [](ibv_cq*) { return EBUSY; };
  EXPECT_EQ(destroy_cq(cq_), EBUSY);
  EXPECT_EQ(control_.waits, 0);
  control_.run();
  EXPECT_EQ(polls, 1);
  table_.destroy_cq = destroys;
  EXPECT_EQ(destroy_cq(cq_), 0);
  EXPECT_EQ(dealloc_pd(pd_), 0);
}

}  // namespace
}  // namespace shift::ops
