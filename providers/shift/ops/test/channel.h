// A completion channel over a fake NIC's, as the application sees it. Its clock stands still.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <ctime>

#include "group/completion_events.h"
#include "group/replay.h"
#include "group/stock.h"
#include "group/test/fake.h"
#include "ops/entry.h"
#include "ops/tables.h"

namespace shift::ops {

// The tests' clock: it stands still however long a test gets no processor.
inline std::chrono::steady_clock::time_point stopped_now;

// The completion queue for which the default NIC raises events, as many as the eventfd counts.
inline group::CompletionQueue* raised = nullptr;

inline int fake_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** owner) {
  uint64_t one;
  if (read(channel->fd, &one, sizeof one) != sizeof one) return -1;
  *cq = raised->real[group::kDefault];
  *owner = raised;
  return 0;
}

class ChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    on_tick(0);
    table_ = *group::fake_stock();
    table_.get_cq_event = fake_get_cq_event;
    table_.ack_cq_events = [](ibv_cq*, unsigned) {};
    before_ = stock;
    stopped_now = std::chrono::steady_clock::now();
    group::event_clock = [] { return stopped_now; };
    stock = &table_;
    cq_ = raised = world_.make_cq();
    real_.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
    channel_.real[group::kDefault] = &real_;
    channel_.inject_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    channel_.channel.context = world_.context.handle();
    channel_.channel.fd = epoll_create1(EPOLL_CLOEXEC);
    add(real_.fd, group::kDefault);
    add(channel_.inject_fd, group::kMembersMax);
    cq_->channel = &channel_;
    cq_->cq.channel = &channel_.channel;
    group_ = world_.make_group(cq_);
  }
  void TearDown() override {
    group::event_clock = &std::chrono::steady_clock::now;
    stock = before_;
    for (int fd : {real_.fd, channel_.inject_fd, channel_.channel.fd, closed_fd_}) {
      if (fd >= 0) close(fd);
    }
  }
  void add(int fd, uint64_t tag) {
    epoll_event event{.events = EPOLLIN, .data = {.u64 = tag}};
    ASSERT_EQ(epoll_ctl(channel_.channel.fd, EPOLL_CTL_ADD, fd, &event), 0);
  }
  group::FakeQp& nic() { return group::World::fake(group_, group::kDefault); }
  void raise() {
    const uint64_t one = 1;
    ASSERT_EQ(write(real_.fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  // Sets what the test's own signal does during a wait.
  static void on_tick(
      int flags, void (*handler)(int) = [](int) {}) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = flags;
    sigaction(SIGUSR1, &action, nullptr);
  }
  void arm() { ASSERT_EQ(req_notify_cq(&cq_->cq, 0), 0); }
  // Waits for an event. False: no event came, and the test's signal ended the wait.
  bool event() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    itimerspec soon{};
    soon.it_value.tv_nsec = 50'000'000;
    soon.it_interval.tv_nsec = 50'000'000;
    timer_t timer{};
    sigevent tick{};
    tick.sigev_notify = SIGEV_SIGNAL;
    tick.sigev_signo = SIGUSR1;
    EXPECT_EQ(timer_create(CLOCK_MONOTONIC, &tick, &timer), 0);
    EXPECT_EQ(timer_settime(timer, 0, &soon, nullptr), 0);
    const int result = get_cq_event(&channel_.channel, &cq, &context);
    const int error = errno;
    timer_delete(timer);
    if (result != 0) {
      EXPECT_TRUE(error == (is_blocking() ? EINTR : EAGAIN)) << error;
      return false;
    }
    EXPECT_EQ(cq, &cq_->cq);
    return true;
  }
  // Acts like the member's driver when it lets go of its device.
  void close_channel(int member) {
    static ibv_comp_channel closed{};
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    close(ends[0]);
    (void)epoll_ctl(channel_.channel.fd, EPOLL_CTL_DEL, real_.fd, nullptr);
    if (member != group::kDefault) add(real_.fd, group::kDefault);
    closed.fd = closed_fd_ = ends[1];
    channel_.real[member] = &closed;
    add(closed.fd, member);
  }
  // Takes an event without waiting. Returns 0 or errno.
  int take() {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    return get_cq_event(&channel_.channel, &cq, &context) == 0 ? 0 : errno;
  }
  bool is_readable() {
    pollfd one{channel_.channel.fd, POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
  }
  bool is_blocking() { return !(fcntl(channel_.channel.fd, F_GETFL) & O_NONBLOCK); }
  void nonblocking() { fcntl(channel_.channel.fd, F_SETFL, O_NONBLOCK); }
  // Polls once, as the application does; returns the number of completions.
  int poll(int most = 4) {
    ibv_wc wc[4];
    return poll_cq(&cq_->cq, most, wc);
  }
  // Messages arrive.
  void receive(int count) {
    for (int i = 0; i < count; i++) {
      group::post_recv(*group_, 7);
      ASSERT_TRUE(nic().complete_recv());
    }
  }
  // A program that waits in its calls goes on over the other NIC, long enough ago for its events to
  // be in doubt no more.
  void go_to_backup() {
    EXPECT_EQ(poll(), 0);
    EXPECT_FALSE(event());
    group::leave_for(*group_, group::kBackup, group::kBackup);
    EXPECT_EQ(group::replay(*group_, 0).refusal, nullptr);
    stopped_now += std::chrono::seconds(1);
  }
  // The NIC reports by an event that it cannot reach the peer.
  void fail_a_send(bool signaled = true) {
    group::post_send(*group_, 1, IBV_WR_SEND, signaled);
    nic().break_with(IBV_WC_RETRY_EXC_ERR);
    raise();
  }
  void complete_one() {
    arm();
    send(1);
    ASSERT_TRUE(nic().complete_send());
    raise();
    EXPECT_TRUE(event());
    EXPECT_EQ(poll(), 1);
  }
  void send(uint64_t id) { group::post_send(*group_, id, IBV_WR_SEND); }

  StockVerbs table_;
  const StockVerbs* before_ = nullptr;
  group::World world_;
  ibv_comp_channel real_{};
  int closed_fd_ = -1;
  group::CompletionChannel channel_{};
  group::CompletionQueue* cq_ = nullptr;
  group::Group* group_ = nullptr;
};

}  // namespace shift::ops
