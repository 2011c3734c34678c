// What a program is told about its connections, and what it is not told.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

extern "C" {
extern rdma_cm_event* fake_events;
extern int fake_left;
extern int fake_acknowledged;
extern int fake_disconnect_error;
extern int fake_disconnect_waits;
__attribute__((visibility("default"))) bool shift_qp_is_protected(ibv_qp* qp);
__attribute__((visibility("default"))) bool shift_qp_has_left(ibv_qp* qp);
__attribute__((visibility("default"))) bool shift_device_is_masked(ibv_context* context);
__attribute__((visibility("default"))) void shift_on_peer_gone(void (*call)(ibv_qp*));
}

namespace {

ibv_qp protected_qp{};
bool has_left = false;  // the protected QP has left a path
ibv_context masked_device{};
void (*peer_gone)(ibv_qp*) = nullptr;  // the callback that the front of librdmacm has set

// The channel is readable while the kernel has an event.
struct EventsTest : ::testing::Test {
  ibv_qp other_qp{};
  rdma_event_channel channel{eventfd(0, EFD_NONBLOCK)};
  rdma_cm_id id{};
  std::vector<rdma_cm_event> events;
  std::vector<rdma_cm_event_type> seen;

  EventsTest() {
    id.channel = &channel;
    has_left = false;
    fake_left = fake_disconnect_error = fake_disconnect_waits = 0;
  }
  ~EventsTest() override {
    rdma_destroy_id(&id);
    close(channel.fd);
  }

  void add(rdma_cm_event_type type, rdma_cm_id* of, int status = 0) {
    rdma_cm_event event{};
    event.id = of;
    event.event = type;
    event.status = status;
    events.push_back(event);
  }
  // Collects what the program sees of all these events.
  void run() {
    fake_events = events.data();
    fake_left = static_cast<int>(events.size());
    fake_acknowledged = 0;
    rdma_cm_event* event = nullptr;
    while (rdma_get_cm_event(&channel, &event) == 0) seen.push_back(event->event);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(fake_left, 0);
    EXPECT_EQ(seen.size() + static_cast<size_t>(fake_acknowledged), events.size());
  }
  // A protected connection has one event from the kernel that the program must not see.
  void connect_and_hide_one() {
    id.qp = &protected_qp;
    add(RDMA_CM_EVENT_ESTABLISHED, &id);
    run();
    events.clear();
    add(RDMA_CM_EVENT_UNREACHABLE, &id, -ETIMEDOUT);
    fake_events = events.data();
    fake_left = 1;
    fake_acknowledged = 0;
  }
};

TEST_F(EventsTest, established_and_protected_is_not_called_unreachable) {
  id.qp = &protected_qp;
  add(RDMA_CM_EVENT_ESTABLISHED, &id);
  add(RDMA_CM_EVENT_UNREACHABLE, &id, -ETIMEDOUT);
  add(RDMA_CM_EVENT_UNREACHABLE, &id, -ETIMEDOUT);
  add(RDMA_CM_EVENT_DISCONNECTED, &id);
  run();
  EXPECT_EQ(seen, (std::vector{RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED}));
  EXPECT_EQ(fake_acknowledged, 2);
}

TEST_F(EventsTest, a_hidden_event_is_not_left_with_a_caller_that_gets_none) {
  connect_and_hide_one();
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(&channel, &event), -1);
  EXPECT_EQ(fake_acknowledged, 1);
  EXPECT_EQ(event, nullptr) << "it was acknowledged, and its memory freed";
}

TEST_F(EventsTest, the_stock_library_itself_is_not_left_waiting) {
  connect_and_hide_one();
  ASSERT_EQ(rdma_connect(&id, nullptr), 0);
  ASSERT_EQ(id.event, events.data());
  EXPECT_EQ(id.event->event, RDMA_CM_EVENT_ADDR_CHANGE);
  EXPECT_EQ(id.event->status, 0);
  EXPECT_EQ(fake_acknowledged, 0) << "whoever was given it acknowledges it";
}

TEST_F(EventsTest, what_is_not_protected_is_told) {
  id.qp = &other_qp;
  add(RDMA_CM_EVENT_ESTABLISHED, &id);
  add(RDMA_CM_EVENT_UNREACHABLE, &id, -ETIMEDOUT);
  run();
  EXPECT_EQ(seen.size(), 2u);
}

TEST_F(EventsTest, an_attempt_that_fails_is_told) {
  id.qp = &protected_qp;
  add(RDMA_CM_EVENT_ROUTE_RESOLVED, &id);
  add(RDMA_CM_EVENT_UNREACHABLE, &id, -ETIMEDOUT);
  run();
  EXPECT_EQ(seen.size(), 2u);
}

TEST_F(EventsTest, an_id_at_the_address_of_an_old_one_begins_anew) {
  id.qp = &protected_qp;
  add(RDMA_CM_EVENT_ESTABLISHED, &id);
  add(RDMA_CM_EVENT_CONNECT_REQUEST, &id);
  add(RDMA_CM_EVENT_UNREACHABLE, &id, -ETIMEDOUT);
  run();
  EXPECT_EQ(seen.size(), 3u);
}

TEST_F(EventsTest, an_id_without_a_queue_pair_is_told_everything_where_nothing_is_masked) {
  ibv_context other_device{};
  id.verbs = &other_device;
  add(RDMA_CM_EVENT_ESTABLISHED, &id);
  add(RDMA_CM_EVENT_UNREACHABLE, &id, -ETIMEDOUT);
  run();
  EXPECT_EQ(seen.size(), 2u);
}

// The program makes the QP by itself. At the connecting end the last event is then the response,
// which the program completes by rdma_establish().
TEST_F(EventsTest, an_id_without_a_queue_pair_goes_by_its_device) {
  id.verbs = &masked_device;
  for (const auto stands : {RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED}) {
    seen.clear();
    events.clear();
    add(RDMA_CM_EVENT_ROUTE_RESOLVED, &id);
    add(stands, &id);
    add(RDMA_CM_EVENT_UNREACHABLE, &id, -ETIMEDOUT);
    add(RDMA_CM_EVENT_DEVICE_REMOVAL, &id);
    run();
    EXPECT_EQ(seen, (std::vector{RDMA_CM_EVENT_ROUTE_RESOLVED, stands}));
  }
}

struct GoneTest : EventsTest {
  GoneTest() {
    id.qp = &protected_qp;
    add(RDMA_CM_EVENT_ESTABLISHED, &id);
    run();
    events.clear();
    seen.clear();
  }
  // Takes the next event, which has to be ours.
  void expect_disconnected() {
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(&channel, &event), 0);
    EXPECT_EQ(event->event, RDMA_CM_EVENT_DISCONNECTED);
    EXPECT_EQ(event->id, &id);
    EXPECT_EQ(event->status, 0);
    fake_acknowledged = 0;
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
    EXPECT_EQ(fake_acknowledged, 0) << "the stock library knows nothing of it";
  }
};

TEST_F(GoneTest, a_peer_that_closed_is_told_once_whoever_says_so) {
  peer_gone(&protected_qp);
  expect_disconnected();
  peer_gone(&protected_qp);
  add(RDMA_CM_EVENT_DISCONNECTED, &id);
  add(RDMA_CM_EVENT_TIMEWAIT_EXIT, &id);
  run();
  EXPECT_EQ(seen, (std::vector{RDMA_CM_EVENT_TIMEWAIT_EXIT}));
}

TEST_F(GoneTest, what_the_kernel_told_first_is_not_told_again) {
  add(RDMA_CM_EVENT_DISCONNECTED, &id);
  run();
  peer_gone(&protected_qp);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(&channel, &event), -1);
}

TEST_F(GoneTest, an_id_that_is_destroyed_is_told_of_no_more) {
  peer_gone(&protected_qp);
  rdma_destroy_id(&id);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(&channel, &event), -1);
}

TEST_F(GoneTest, another_channel_hears_nothing_of_it) {
  rdma_event_channel other{eventfd(0, EFD_NONBLOCK)};
  peer_gone(&protected_qp);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(&other, &event), -1);
  expect_disconnected();
  close(other.fd);
}

TEST_F(GoneTest, a_thread_that_waits_is_woken) {
  fcntl(channel.fd, F_SETFL, 0);
  std::thread teller([] { peer_gone(&protected_qp); });
  expect_disconnected();
  teller.join();
}

TEST_F(GoneTest, a_thread_that_waits_gets_the_kernels_events_too) {
  fcntl(channel.fd, F_SETFL, 0);
  add(RDMA_CM_EVENT_DISCONNECTED, &id);
  fake_events = events.data();
  fake_left = 1;
  std::thread teller([this] {
    const uint64_t one = 1;
    ASSERT_EQ(write(channel.fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  });
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(&channel, &event), 0);
  EXPECT_EQ(event, events.data());
  teller.join();
}

TEST_F(EventsTest, a_peer_that_closed_before_the_program_knew_of_the_connection_is_told) {
  id.qp = &protected_qp;
  add(RDMA_CM_EVENT_CONNECT_REQUEST, &id);
  run();
  ASSERT_NE(peer_gone, nullptr);
  peer_gone(&protected_qp);
  for (const bool left : {true, false}) {
    has_left = left;
    events.clear();
    seen.clear();
    add(RDMA_CM_EVENT_ESTABLISHED, &id);
    fake_events = events.data();
    fake_left = 1;
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(&channel, &event), 0);
    EXPECT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
    // Another QP at the same address has left no path.
    ASSERT_EQ(rdma_get_cm_event(&channel, &event), left ? 0 : -1);
    if (!left) continue;
    EXPECT_EQ(event->event, RDMA_CM_EVENT_DISCONNECTED);
    rdma_ack_cm_event(event);
    rdma_destroy_id(&id);
    peer_gone(&protected_qp);
  }
}

TEST_F(GoneTest, a_program_that_ends_the_connection_behind_a_fault_is_told_at_once) {
  has_left = true;
  ASSERT_EQ(rdma_disconnect(&id), 0);
  expect_disconnected();
  // Programs answer that event like this.
  ASSERT_EQ(rdma_disconnect(&id), 0);
  add(RDMA_CM_EVENT_DISCONNECTED, &id);
  run();
  EXPECT_TRUE(seen.empty()) << "the kernel's, a minute later";
}

TEST_F(GoneTest, a_program_that_ends_a_healthy_connection_waits_for_the_kernel) {
  ASSERT_EQ(rdma_disconnect(&id), 0);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(&channel, &event), -1);
  fake_disconnect_error = ENODEV;
  EXPECT_EQ(rdma_disconnect(&id), -1);
}

TEST_F(GoneTest, a_thread_that_waits_for_the_end_is_woken_by_the_one_that_makes_it) {
  has_left = true;
  fcntl(channel.fd, F_SETFL, 0);
  std::thread ender([this] { EXPECT_EQ(rdma_disconnect(&id), 0); });
  expect_disconnected();
  ender.join();
}

TEST_F(GoneTest, a_connection_ends_well_that_the_kernel_has_taken_away) {
  add(RDMA_CM_EVENT_DEVICE_REMOVAL, &id);
  run();
  ASSERT_TRUE(seen.empty());
  fake_disconnect_error = EINVAL;
  EXPECT_EQ(rdma_disconnect(&id), 0);
  expect_disconnected();
}

TEST_F(GoneTest, a_program_that_cannot_end_the_connection_is_told_so) {
  has_left = true;
  fake_disconnect_error = EINVAL;
  EXPECT_EQ(rdma_disconnect(&id), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(&channel, &event), -1);
  // The device is gone, and the program has not read that event yet.
  fake_disconnect_error = ENXIO;
  EXPECT_EQ(rdma_disconnect(&id), 0);
  expect_disconnected();
}

// An id without a channel of the program's: the stock library takes the events itself.
struct SynchronousTest : EventsTest {
  SynchronousTest() {
    id.qp = &protected_qp;
    add(RDMA_CM_EVENT_ESTABLISHED, &id);
    fake_events = events.data();
    fake_left = 1;
    EXPECT_EQ(rdma_connect(&id, nullptr), 0);
    EXPECT_EQ(id.event->event, RDMA_CM_EVENT_ESTABLISHED);
    id.event = nullptr;
    has_left = true;
    fake_disconnect_waits = 1;
  }
};

TEST_F(SynchronousTest, the_stock_library_finds_the_end_that_it_waits_for) {
  ASSERT_EQ(rdma_disconnect(&id), 0);
  ASSERT_NE(id.event, nullptr);
  EXPECT_EQ(id.event->event, RDMA_CM_EVENT_DISCONNECTED);
  rdma_destroy_id(&id);
  EXPECT_EQ(id.event, nullptr) << "acknowledged by us: the stock library does not know it";
}

TEST_F(SynchronousTest, nothing_is_left_behind_where_the_device_is_gone) {
  fake_disconnect_error = ENXIO;
  ASSERT_EQ(rdma_disconnect(&id), 0);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(&channel, &event), -1);
}

// A thread that the test can see sleeping.
class Sleeper {
 public:
  explicit Sleeper(const std::function<void()>& act)
      : thread_([this, act] {
          number_ = gettid();
          act();
          ended_ = true;
        }) {}
  ~Sleeper() { thread_.join(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  void await() const {
    while (!ended_ && !sleeps()) std::this_thread::yield();
  }
  bool ended() const { return ended_; }
  pthread_t handle() { return thread_.native_handle(); }

 private:
  bool sleeps() const {
    std::ifstream file("/proc/self/task/" + std::to_string(number_) + "/stat");
    std::string text;
    std::getline(file, text);
    const auto name_end = text.rfind(')');
    return name_end != std::string::npos && text[name_end + 2] == 'S';
  }
  std::atomic<pid_t> number_{0};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

TEST_F(GoneTest, an_id_lives_until_its_events_are_acknowledged) {
  peer_gone(&protected_qp);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(&channel, &event), 0);
  Sleeper destroyer([this] { rdma_destroy_id(&id); });
  destroyer.await();
  EXPECT_FALSE(destroyer.ended());
  rdma_ack_cm_event(event);
}

TEST_F(GoneTest, an_id_that_goes_to_another_channel_takes_its_events_along) {
  rdma_event_channel other{eventfd(0, 0)};
  rdma_cm_event* event = nullptr;
  {
    Sleeper waiter([&] { EXPECT_EQ(rdma_get_cm_event(&other, &event), 0); });
    waiter.await();
    peer_gone(&protected_qp);
    ASSERT_EQ(rdma_migrate_id(&id, &other), 0);
  }
  EXPECT_EQ(event->event, RDMA_CM_EVENT_DISCONNECTED);
  Sleeper mover([this] { rdma_migrate_id(&id, &channel); });
  mover.await();
  EXPECT_FALSE(mover.ended()) << "an event of the old channel is in a program's hands";
  rdma_ack_cm_event(event);
  close(other.fd);
}

std::atomic<int> signals{0};

TEST_F(GoneTest, a_signal_ends_the_wait_where_its_handler_is_to) {
  fcntl(channel.fd, F_SETFL, 0);
  for (const int flags : {0, SA_RESTART}) {
    struct sigaction action {};
    struct sigaction before {};
    action.sa_handler = [](int) { signals++; };
    action.sa_flags = flags;
    sigaction(SIGUSR1, &action, &before);
    int result = 0, error = 0;
    rdma_cm_event* event = nullptr;
    signals = 0;
    {
      Sleeper waiter([&] {
        result = rdma_get_cm_event(&channel, &event);
        error = errno;
      });
      waiter.await();
      pthread_kill(waiter.handle(), SIGUSR1);
      while (signals == 0) std::this_thread::yield();
      if (flags != 0) {
        waiter.await();
        EXPECT_FALSE(waiter.ended());
        peer_gone(&protected_qp);
      }
    }
    sigaction(SIGUSR1, &before, nullptr);
    EXPECT_EQ(result, flags == 0 ? -1 : 0);
    if (flags == 0) {
      EXPECT_EQ(error, EINTR);
    } else {
      rdma_ack_cm_event(event);
    }
  }
}

// A listener, which has no QP, and a connection that came by it.
struct ListenerTest : EventsTest {
  rdma_cm_id listener{};

  ListenerTest() {
    listener.channel = &channel;
    id.qp = &protected_qp;
    add(RDMA_CM_EVENT_CONNECT_REQUEST, &id);
    events.back().listen_id = &listener;
    add(RDMA_CM_EVENT_ESTABLISHED, &id);
    run();
    events.clear();
    seen.clear();
  }
  ~ListenerTest() override { rdma_destroy_id(&listener); }
  void lose_device() {
    add(RDMA_CM_EVENT_DEVICE_REMOVAL, &listener);
    run();
  }
};

TEST_F(ListenerTest, its_end_is_not_told_while_what_came_by_it_is_masked) {
  lose_device();
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(fake_acknowledged, 1);
}

TEST_F(ListenerTest, its_end_is_told_when_all_that_came_by_it_are_destroyed) {
  lose_device();
  fcntl(channel.fd, F_SETFL, 0);
  std::thread destroyer([this] { rdma_destroy_id(&id); });
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(&channel, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_EQ(event->id, &listener);
  fake_acknowledged = 0;
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  EXPECT_EQ(fake_acknowledged, 0) << "the stock library's own was acknowledged before";
  destroyer.join();
}

TEST_F(ListenerTest, one_that_is_destroyed_is_told_of_no_more) {
  lose_device();
  rdma_destroy_id(&id);
  rdma_destroy_id(&listener);
  events.clear();
  run();
  EXPECT_TRUE(seen.empty());
}

TEST_F(ListenerTest, its_end_is_told_at_once_when_nothing_is_masked) {
  id.qp = &other_qp;
  lose_device();
  EXPECT_EQ(seen, (std::vector{RDMA_CM_EVENT_DEVICE_REMOVAL}));
}

TEST(FrontTest, other_functions_are_the_stock_librarys) {
  EXPECT_EQ(rdma_listen(nullptr, 4711), 4711);
}

}  // namespace

bool shift_qp_is_protected(ibv_qp* qp) {
  return qp == &protected_qp;
}

bool shift_qp_has_left(ibv_qp* qp) {
  return qp == &protected_qp && has_left;
}

bool shift_device_is_masked(ibv_context* context) {
  return context == &masked_device;
}

void shift_on_peer_gone(void (*call)(ibv_qp*)) {
  peer_gone = call;
}
