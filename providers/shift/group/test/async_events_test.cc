// Events of objects: each comes once, is acknowledged before its object is destroyed, or is dropped
// with it.
#include "group/async_events.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

namespace shift::group {
namespace {

ibv_async_event of(ibv_qp* qp, ibv_event_type type = IBV_EVENT_QP_LAST_WQE_REACHED) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = qp;
  return event;
}

ibv_async_event of_port() {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_PORT_ERR;
  event.element.port_num = 1;
  return event;
}

class AsyncEventsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(events_.open()); }
  bool readable() {
    pollfd fd{events_.fd(), POLLIN, 0};
    return poll(&fd, 1, 0) == 1;
  }
  void nonblocking() { fcntl(events_.fd(), F_SETFL, fcntl(events_.fd(), F_GETFL) | O_NONBLOCK); }

  AsyncEvents events_;
  ibv_qp qp_{}, other_{};
};

TEST_F(AsyncEventsTest, ComesOutOnceAndInOrder) {
  EXPECT_FALSE(readable());
  ASSERT_TRUE(events_.raise(of(&qp_), true));
  ASSERT_TRUE(events_.raise(of_port(), false));
  EXPECT_TRUE(readable());
  ibv_async_event event{};
  ASSERT_EQ(events_.get(&event), 0);
  EXPECT_EQ(event.element.qp, &qp_);
  EXPECT_TRUE(readable());
  ASSERT_EQ(events_.get(&event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_FALSE(readable());
  nonblocking();
  EXPECT_EQ(events_.get(&event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// The stock library, which waits in read(2), behaves like this.
TEST_F(AsyncEventsTest, AHandlerWithSaRestartEndsNoWait) {
  static std::atomic<int> ticks;
  ticks = 0;
  struct sigaction action {
  }, before{};
  action.sa_handler = [](int) { ticks++; };
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, &before);
  ibv_async_event event{};
  std::atomic<bool> back{false};
  int result = -1;
  std::thread reader([&] {
    result = events_.get(&event);
    back = true;
  });
  for (int sent = 1; sent <= 3 && !back; sent++) {
    usleep(10'000);  // most likely it waits by now
    pthread_kill(reader.native_handle(), SIGUSR1);
    while (ticks < sent && !back) usleep(100);
  }
  ASSERT_TRUE(events_.raise(of_port(), false));
  reader.join();
  sigaction(SIGUSR1, &before, nullptr);
  EXPECT_EQ(result, 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
}

TEST_F(AsyncEventsTest, WhatWaitsGoesWithItsObject) {
  ASSERT_TRUE(events_.raise(of(&qp_), true));
  ASSERT_TRUE(events_.raise(of(&other_), true));
  events_.forget(&qp_);
  ibv_async_event event{};
  ASSERT_EQ(events_.get(&event), 0);
  EXPECT_EQ(event.element.qp, &other_);
  EXPECT_FALSE(readable());
  events_.acknowledge(event);
  events_.forget(&other_);
}

TEST_F(AsyncEventsTest, AnObjectWaitsForEachOfItsEvents) {
  ibv_async_event first{}, second{};
  ASSERT_TRUE(events_.raise(of(&qp_), true));
  ASSERT_TRUE(events_.raise(of(&qp_, IBV_EVENT_COMM_EST), true));
  ASSERT_EQ(events_.get(&first), 0);
  ASSERT_EQ(events_.get(&second), 0);
  events_.forget(&other_);  // no event of it waits for an acknowledgement
  std::atomic<int> acknowledged{0};
  int seen = -1;
  std::thread destroyer([&] {
    events_.forget(&qp_);
    seen = acknowledged;
  });
  acknowledged++;
  events_.acknowledge(first);
  acknowledged++;
  events_.acknowledge(second);
  destroyer.join();
  EXPECT_EQ(seen, 2);
}

// An object that could not be destroyed after all has lost no event.
TEST_F(AsyncEventsTest, WhatIsKeptBackComesWhenTheObjectStays) {
  ASSERT_TRUE(events_.raise(of(&qp_), true));
  ASSERT_TRUE(events_.raise(of(&other_), true));
  ASSERT_TRUE(events_.keep_back(&qp_));
  ASSERT_TRUE(events_.raise(of(&qp_, IBV_EVENT_COMM_EST), true));
  ibv_async_event event{};
  ASSERT_EQ(events_.get(&event), 0);
  EXPECT_EQ(event.element.qp, &other_);
  EXPECT_FALSE(readable());
  nonblocking();
  EXPECT_EQ(events_.get(&event), -1);
  events_.let_come(&qp_);
  EXPECT_TRUE(readable());
  for (ibv_event_type type : {IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_COMM_EST}) {
    ASSERT_EQ(events_.get(&event), 0);
    EXPECT_EQ(event.event_type, type);
    events_.acknowledge(event);
  }
  EXPECT_FALSE(readable());
}

TEST_F(AsyncEventsTest, WhatIsKeptBackGoesWithTheObject) {
  ASSERT_TRUE(events_.raise(of(&qp_), true));
  ASSERT_TRUE(events_.keep_back(&qp_));
  ASSERT_TRUE(events_.raise(of(&qp_, IBV_EVENT_COMM_EST), true));
  events_.forget(&qp_);
  EXPECT_FALSE(readable());
  // Now this is another object at the same address.
  ASSERT_TRUE(events_.raise(of(&qp_), true));
  EXPECT_TRUE(readable());
}

TEST_F(AsyncEventsTest, WhatWasGivenIsAcknowledgedBeforeTheObjectMayGo) {
  ibv_async_event event{};
  ASSERT_TRUE(events_.raise(of(&qp_), true));
  ASSERT_EQ(events_.get(&event), 0);
  std::atomic<bool> acknowledged = false;
  bool seen = false;
  std::thread destroyer([&] { seen = events_.keep_back(&qp_) && acknowledged; });
  acknowledged = true;
  events_.acknowledge(event);
  destroyer.join();
  EXPECT_TRUE(seen);
}

TEST_F(AsyncEventsTest, WhatIsAcknowledgedBeneathIsNotWaitedFor) {
  ASSERT_TRUE(events_.raise(of(&qp_), false));
  ibv_async_event event{};
  ASSERT_EQ(events_.get(&event), 0);
  events_.forget(&qp_);
}

TEST_F(AsyncEventsTest, WakesAReader) {
  ibv_async_event event{};
  int result = -1;
  std::thread reader([&] { result = events_.get(&event); });
  ASSERT_TRUE(events_.raise(of(&qp_), true));
  reader.join();
  EXPECT_EQ(result, 0);
  EXPECT_EQ(event.element.qp, &qp_);
}

TEST_F(AsyncEventsTest, AReaderCanBeCancelled) {
  pthread_t reader;
  ASSERT_EQ(pthread_create(
                &reader, nullptr,
                [](void* events) -> void* {
                  ibv_async_event event{};
                  (void)static_cast<AsyncEvents*>(events)->get(&event);
                  return nullptr;
                },
                &events_),
            0);
  ASSERT_EQ(pthread_cancel(reader), 0);
  void* result = nullptr;
  ASSERT_EQ(pthread_join(reader, &result), 0);
  EXPECT_EQ(result, PTHREAD_CANCELED);
}

TEST_F(AsyncEventsTest, WhoReadsNothingLosesTheLast) {
  int accepted = 0;
  while (accepted < 100'000 && events_.raise(of_port(), false)) accepted++;
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 100'000);
}

}  // namespace
}  // namespace shift::group
