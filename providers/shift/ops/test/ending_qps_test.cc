// The application destroys QPs: it waits for no background thread, and these leave alone what it
// destroys, whatever they were about to do.
#include <cerrno>
#include <functional>
#include <memory>

#include "group/ending.h"
#include "group/stock.h"
#include "ops/test/queue_pairs.h"

namespace shift::ops {
namespace {

class EndingPairs : public QueuePairs {
 protected:
  EndingPairs() {
    table_ = *stock;
    before_ = std::exchange(stock, &table_);
    in_destroy = nullptr;
    refused = modified = made = 0;
    table_.destroy_qp = [](ibv_qp* qp) {
      if (in_destroy) std::exchange(in_destroy, nullptr)();
      return refused != 0 ? refused : group::fake_stock()->destroy_qp(qp);
    };
    table_.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      modified++;
      return group::fake_stock()->modify_qp(qp, attr, mask);
    };
    table_.create_qp = [](ibv_pd* pd, ibv_qp_init_attr* init) {
      made++;
      return group::fake_stock()->create_qp(pd, init);
    };
  }
  ~EndingPairs() override {
    control_.run_timers();
    worker_.run();
    stock = before_;
  }
  bool is_known(const wire::QpName& name) {
    net::Delegate& asked = coordinator_;
    return asked.knows_qp(name);
  }
  // The application has connected a QP, and the control thread has a session for it.
  void connect(bool twins = true) {
    World::Options options;
    options.twins = twins;
    group_ = world_.make_group(cq_, cq_, options);
    world_.let_go(group_);
    name_ = group_->life.ends.local;
    coordinator_.group_add(group_);
    control_.run();
    ASSERT_TRUE(is_known(name_));
    control_.waits = modified = 0;
  }
  int destroy() { return destroy_qp(group_->handle()); }
  bool is_on(int member, uint32_t qpn) { return world_.nic(member).qps.contains(qpn); }

  static inline std::function<void()> in_destroy;  // runs when the NIC is asked to destroy the QP
  static inline int refused;                       // what the NIC answers to that
  static inline int modified, made;  // how many QPs NICs were asked to change and make

  StockVerbs table_;
  const StockVerbs* before_;
  wire::QpName name_;
};

TEST_F(EndingPairs, DoNotWaitForTheControlThread) {
  connect();
  const uint32_t qpn = group_->qpn(), twin = group_->real[kBackup]->qp_num;
  ASSERT_EQ(destroy(), 0);
  EXPECT_EQ(control_.waits, 0);
  EXPECT_FALSE(is_on(kDefault, qpn));
  EXPECT_FALSE(is_known(name_)) << "no peer is answered any more";
  EXPECT_TRUE(is_on(kBackup, twin)) << "it goes later";
  control_.run_timers();
  worker_.run();
  EXPECT_FALSE(is_on(kBackup, twin));
  EXPECT_EQ(modified, 0);
}

TEST_F(EndingPairs, WaitForItOffTheDefault) {
  connect();
  group::leave_for(*group_, kBackup, kBackup);
  ASSERT_EQ(group::replay(*group_, 0).refusal, nullptr);
  ASSERT_EQ(destroy(), 0);
  EXPECT_EQ(control_.waits, 1);
}

TEST_F(EndingPairs, AreLeftAloneThoughAFaultWasReported) {
  connect();
  send(1);
  break_default();
  ASSERT_EQ(destroy(), 0);
  EXPECT_EQ(control_.waits, 0);
  EXPECT_EQ(poll(), Completions{});
  control_.run_timers();
  worker_.run();
  EXPECT_EQ(modified, 0) << "no QP is brought to ERR";
}

TEST_F(EndingPairs, AreLeftAloneWhenAFaultComesWhileTheyAreDestroyed) {
  connect();
  const group::Held held(group_);
  in_destroy = [this] {
    coordinator_.fault(group_, fsm::Event::kPathFault, kDefault, "a test");
    control_.run();
    worker_.run();
  };
  ASSERT_EQ(destroy(), 0);
  EXPECT_EQ(held->send.route, group::Route::kOnDefault);
  EXPECT_EQ(held->life.control.state, fsm::State::kActive);
  control_.run_timers();
  worker_.run();
  EXPECT_EQ(held->life.control.state, fsm::State::kClosed);
  EXPECT_EQ(modified, 0);
}

// A round has begun, and its fence is about to park the group.
TEST_F(EndingPairs, AreLeftAloneBetweenAFaultAndItsFence) {
  connect();
  const group::Held held(group_);
  coordinator_.fault(group_, fsm::Event::kPathFault, kDefault, "a test");
  control_.run_one();
  ASSERT_NE(held->life.control.state, fsm::State::kActive);
  ASSERT_EQ(held->send.route, group::Route::kOnDefault);
  in_destroy = [this] {
    control_.run();
    worker_.run();
  };
  ASSERT_EQ(destroy(), 0);
  EXPECT_EQ(control_.waits, 0);
  EXPECT_EQ(held->send.route, group::Route::kOnDefault);
  control_.run_timers();
  worker_.run();
  EXPECT_EQ(held->life.control.state, fsm::State::kClosed);
  EXPECT_EQ(modified, 0);
}

// The command threads were asked to make QPs on the further NICs, and come to it too late.
TEST_F(EndingPairs, GetNoTwinsAnyMore) {
  connect(false);
  ASSERT_EQ(destroy(), 0);
  control_.run_timers();
  worker_.run();
  EXPECT_EQ(made, 0);
}

TEST_F(EndingPairs, WaitForAJobThatUsesThem) {
  connect();
  auto job = std::make_unique<group::JobTurn>(*group_, kDefault);
  commands_.run(0, [&job] { job.reset(); }, {});
  in_destroy = [&job] { EXPECT_EQ(job, nullptr); };
  ASSERT_EQ(destroy(), 0);
  EXPECT_EQ(job, nullptr);
}

// The NIC gives the number out again before the control thread has forgotten the first QP.
TEST_F(EndingPairs, LeaveTheirNumberToTheNextQp) {
  connect();
  const wire::QpName name = name_;
  const uint64_t first = group_->life.serial;
  ASSERT_EQ(destroy(), 0);
  group_ = world_.make_group(cq_);
  group_->life.ends.local = name;
  ASSERT_NE(group_->life.serial, first);
  coordinator_.group_add(group_);
  control_.run();
  EXPECT_TRUE(is_known(name));
  control_.run_timers();
  EXPECT_TRUE(is_known(name)) << "the first one's end is not the second one's";
}

// It comes to the QP's connection after it has reaped what is left of the QP. (A sanitizer sees it
// when the group is gone by then.)
TEST_F(EndingPairs, MayBeReapedBeforeTheControlThreadKnowsThem) {
  connect();
  ASSERT_EQ(destroy(), 0);
  control_.run();  // the reaper's timer runs
  group_ = world_.make_group(cq_);
  world_.let_go(group_);
  name_ = group_->life.ends.local;
  coordinator_.group_add(group_);
  ASSERT_EQ(destroy(), 0);
  control_.fire();
  worker_.run();
  control_.run();
  EXPECT_FALSE(is_known(name_));
}

// What the control thread was about to tell the peer when the QP was destroyed.
TEST_F(EndingPairs, HaveToldNobodyOfAKeyInTheEnd) {
  connect();
  const uint64_t serial = group_->life.serial;
  ASSERT_EQ(destroy(), 0);
  group::ToldKeys& told = world_.context.told_keys;
  told.tell(serial, 1);
  control_.run_timers();
  EXPECT_FALSE(told.withdraw(1));
}

TEST_F(EndingPairs, StayWhenTheNicKeepsThem) {
  connect();
  refused = EBUSY;
  EXPECT_EQ(destroy(), EBUSY);
  EXPECT_FALSE(group_->is_ending);
  EXPECT_FALSE(is_known(name_)) << "from here on the QP is as with stock";
  send(1);
  ASSERT_TRUE(on_default().complete_send());
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_SUCCESS}}));
  send(2);
  on_default().break_with(IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(poll(), (Completions{{2, IBV_WC_RETRY_EXC_ERR}}));
  refused = 0;
  EXPECT_EQ(destroy(), 0);
}

TEST_F(EndingPairs, ShowWhatWasHeldBackWhenTheNicKeepsThem) {
  connect();
  for (uint64_t id : {1u, 2u}) send(id);
  break_default();
  refused = EBUSY;
  EXPECT_EQ(destroy(), EBUSY);
  EXPECT_EQ(poll(), (Completions{{1, IBV_WC_RETRY_EXC_ERR}, {2, kFlushed}}));
  refused = 0;
  EXPECT_EQ(destroy(), 0);
}

}  // namespace
}  // namespace shift::ops
