// Which of the devices' events the application hears, and in what terms (C9).
#include "group/device_events.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <optional>

#include "group/test/fake.h"

namespace shift::group {
namespace {

class DeviceEvents : public ::testing::Test {
 protected:
  void SetUp() override {
    AsyncEvents& events = world_.context.events;
    ASSERT_TRUE(events.open());
    fcntl(events.fd(), F_SETFL, fcntl(events.fd(), F_GETFL) | O_NONBLOCK);
  }
  // What the application hears of an event of its QP on the default NIC.
  std::optional<ibv_async_event> heard(ibv_event_type type) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.qp = group_->real[kDefault];
    return give(event);
  }
  std::optional<ibv_async_event> give(const ibv_async_event& event) {
    event_give(world_.context, event, false);
    ibv_async_event out{};
    if (world_.context.events.get(&out) != 0) return std::nullopt;
    world_.context.events.acknowledge(out);
    return out;
  }
  void protect() { group_->life.control.state = fsm::State::kActive; }
  void unprotect() { group_->life.control.state = fsm::State::kUnbound; }

  World world_;
  CompletionQueue* cq_ = world_.make_cq();
  Group* group_ = world_.make_group(cq_);
};

TEST_F(DeviceEvents, AMaskedFaultIsNotHeardOf) {
  protect();
  EXPECT_FALSE(heard(IBV_EVENT_QP_FATAL));
  EXPECT_FALSE(heard(IBV_EVENT_QP_LAST_WQE_REACHED));
  EXPECT_TRUE(heard(IBV_EVENT_COMM_EST));
}

TEST_F(DeviceEvents, WithoutProtectionEveryEventIsTheApplications) {
  unprotect();
  for (const ibv_event_type type :
       {IBV_EVENT_QP_FATAL, IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_COMM_EST}) {
    const auto event = heard(type);
    ASSERT_TRUE(event) << type;
    EXPECT_EQ(event->event_type, type);
    EXPECT_EQ(event->element.qp, group_->handle());
  }
}

TEST_F(DeviceEvents, AnotherObjectsEventIsNotTheApplications) {
  unprotect();
  ibv_async_event event{};
  event.event_type = IBV_EVENT_COMM_EST;
  event.element.qp = group_->real[kBackup];
  EXPECT_FALSE(give(event));
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = cq_->real[kBackup];
  EXPECT_FALSE(give(event));
  event.element.cq = cq_->real[kDefault];
  EXPECT_EQ(give(event).value().element.cq, &cq_->cq);
}

TEST_F(DeviceEvents, TheLimitIsHeardOfOncePerArming) {
  SharedQueue* queue = world_.make_srq(8);
  ibv_async_event event{};
  event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
  event.element.srq = queue->members[kBackup].real;
  const auto heard = [&] {
    shared_queue_low(world_.context, kBackup, event);
    ibv_async_event out{};
    if (world_.context.events.get(&out) != 0) return false;
    EXPECT_EQ(out.element.srq, &queue->srq);
    world_.context.events.acknowledge(out);
    return true;
  };
  EXPECT_FALSE(heard()) << "it is not armed";
  queue->limit_armed = true;
  EXPECT_TRUE(heard());
  EXPECT_FALSE(heard());
}

}  // namespace
}  // namespace shift::group
