#include "control/error_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <functional>
#include <map>

#include "control/sessions.h"
#include "control/test/lone_session.h"

namespace shift::control {
namespace {

using group::FakeCq;
using group::kBackup;
using group::kDefault;
using std::chrono::milliseconds;

// A loop whose descriptors become readable when the test says so.
class LoopWithFds final : public net::VirtualLoop {
 public:
  using VirtualLoop::VirtualLoop;
  bool add_fd(int fd, uint32_t, FdCallback callback) override {
    callbacks[fd] = std::move(callback);
    return true;
  }
  void remove_fd(int fd) noexcept override { callbacks.erase(fd); }
  void raise(int fd, uint32_t events = EPOLLIN) { callbacks.at(fd)(events); }
  std::map<int, FdCallback> callbacks;
};

// The CQ whose event is to be taken next; nullptr: none.
ibv_cq* raised;
unsigned acknowledged;

int take_event(ibv_comp_channel*, ibv_cq** cq, void** owner) {
  if (raised == nullptr) return -1;
  *owner = raised->cq_context;
  *cq = std::exchange(raised, nullptr);
  return 0;
}

class ErrorWatchTest : public ::testing::Test {
 protected:
  ErrorWatchTest() {
    raised = nullptr;
    acknowledged = 0;
    stock_ = *group::fake_stock();
    stock_.get_cq_event = take_event;
    stock_.ack_cq_events = [](ibv_cq*, unsigned count) { acknowledged += count; };
    stock = &stock_;
    channel_.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    world_.context.members[kBackup].watch = &channel_;
    FakeCq::of(cq_->real[kBackup]).cq.cq_context = cq_;
    watch_.context_add(&world_.context);
  }
  ~ErrorWatchTest() override {
    stock = group::fake_stock();
    close(channel_.fd);
  }
  void raise() {
    raised = cq_->real[kBackup];
    loop_.raise(channel_.fd);
  }
  int armed() { return FakeCq::of(cq_->real[kDefault]).notify_requests; }

  net::VirtualTime time_;
  LoopWithFds loop_{time_};
  StockVerbs stock_{};
  ibv_comp_channel channel_{};
  group::World world_{1, 2};
  group::CompletionQueue* cq_ = world_.make_cq();
  Sessions sessions_;
  group::FakeCommands commands_{loop_};
  NoSink sink_;
  NicWatch nics_{loop_, sink_};
  LateNics late_{loop_, nics_};
  Jobs jobs_{loop_, sessions_, late_};
  ErrorWatch watch_{loop_, sessions_, jobs_};
};

TEST_F(ErrorWatchTest, AQueueThatRaisedAnEventIsArmedAgainLater) {
  raise();
  EXPECT_EQ(armed(), 0);
  raise();  // before the pause is over: once is enough
  time_.run_for(milliseconds(100));
  EXPECT_EQ(armed(), 1);
  raise();
  time_.run_for(milliseconds(100));
  EXPECT_EQ(armed(), 2);
  EXPECT_EQ(acknowledged, 3u) << "else destroying the queue would wait for ever";
}

TEST_F(ErrorWatchTest, ADestroyedQueueIsNotArmedAgain) {
  raise();
  cq_->is_ending = true;
  raise();  // an event that the NIC has raised before
  time_.run_for(milliseconds(100));
  EXPECT_EQ(armed(), 0);
}

TEST_F(ErrorWatchTest, AQueueThatCannotBeDestroyedIsWatchedOn) {
  raise();
  cq_->is_ending = true;
  time_.run_for(milliseconds(100));
  EXPECT_EQ(armed(), 0);
  cq_->is_ending = false;
  watch_.cq_again(*cq_);
  EXPECT_EQ(armed(), 1);
}

TEST_F(ErrorWatchTest, AForgottenContextsQueuesAreNotArmedAgain) {
  raise();
  watch_.context_forget(&world_.context);
  time_.run_for(milliseconds(100));
  EXPECT_EQ(armed(), 0);
  EXPECT_TRUE(loop_.callbacks.empty());
}

TEST_F(ErrorWatchTest, AClosedChannelIsNotWatchedAnyMore) {
  loop_.raise(channel_.fd, EPOLLIN | EPOLLHUP);
  EXPECT_FALSE(loop_.callbacks.empty()) << "there is something to take";
  loop_.raise(channel_.fd, EPOLLHUP);
  EXPECT_TRUE(loop_.callbacks.empty());
}

}  // namespace
}  // namespace shift::control
