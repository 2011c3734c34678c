// Event pipes: order, exact purge, full pipes, and closed readers.
#include "uverbs/event_pipe.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace cxemu {
namespace {

class EventPipeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(EventPipe::create(&pipe_, &reader_), 0);
    ASSERT_EQ(fcntl(reader_, F_SETFL, O_NONBLOCK), 0);
  }
  void TearDown() override {
    if (reader_ >= 0) close(reader_);
  }
  void push(uint64_t key) { ASSERT_TRUE(pipe_->push(&key, sizeof key)); }
  // Returns 0 if the pipe is empty.
  uint64_t pop() {
    uint64_t key = 0;
    return read(reader_, &key, sizeof key) == sizeof key ? key : 0;
  }
  std::unique_ptr<EventPipe> pipe_;
  int reader_ = -1;
};

TEST_F(EventPipeTest, PurgeTakesOnlyUnreadRecordsOfTheKey) {
  for (const uint64_t key : {7, 8, 7, 9, 7}) push(key);
  EXPECT_EQ(pop(), 7u);
  EXPECT_EQ(pipe_->purge(8, 7), 2u);
  EXPECT_EQ(pop(), 8u);
  EXPECT_EQ(pop(), 9u);
  EXPECT_EQ(pop(), 0u);
  EXPECT_EQ(pipe_->purge(8, 7), 0u);
}

TEST_F(EventPipeTest, PurgeDoesNotBlockOnABlockingReader) {
  ASSERT_EQ(fcntl(reader_, F_SETFL, 0), 0);
  EXPECT_EQ(pipe_->purge(8, 1), 0u);
  push(1);
  EXPECT_EQ(pipe_->purge(8, 1), 1u);
}

TEST_F(EventPipeTest, AHungUpPipeGivesWhatItHasAndSaysSo) {
  for (const uint64_t key : {7, 8}) push(key);
  pipe_->hang_up();
  const uint64_t late = 9;
  EXPECT_FALSE(pipe_->push(&late, sizeof late));
  EXPECT_EQ(pop(), 7u);
  pollfd state{reader_, POLLIN, 0};
  EXPECT_EQ(poll(&state, 1, 0), 1);
  EXPECT_EQ(state.revents, POLLIN | POLLHUP);
  EXPECT_EQ(pipe_->purge(8, 9), 0u);  // takes the other record out, too
  EXPECT_EQ(poll(&state, 1, 0), 1);
  EXPECT_EQ(state.revents, POLLHUP);
  EXPECT_EQ(pipe_->purge(8, 8), 1u);  // it was never read
  EXPECT_EQ(pipe_->purge(8, 8), 0u);
}

TEST_F(EventPipeTest, RecordsOfSixteenBytes) {
  const uint64_t first[2] = {1, 100}, second[2] = {2, 1};
  ASSERT_TRUE(pipe_->push(first, sizeof first));
  ASSERT_TRUE(pipe_->push(second, sizeof second));
  EXPECT_EQ(pipe_->purge(16, 1), 1u);  // the 1 in the second record is not a key
  EXPECT_EQ(pop(), 2u);
  EXPECT_EQ(pop(), 1u);
}

TEST_F(EventPipeTest, AClosedReaderRaisesNoSignal) {
  close(reader_);
  reader_ = -1;
  push(5);
  EXPECT_EQ(pipe_->purge(8, 5), 1u);
}

TEST_F(EventPipeTest, HoldsManyEventsAndSaysWhenItIsFull) {
  uint64_t written = 0, key = 3;
  while (written < (1 << 20) && pipe_->push(&key, sizeof key)) ++written;
  EXPECT_GE(written, 65536u / 8);
  EXPECT_LT(written, 1u << 20);
  EXPECT_EQ(pipe_->purge(8, 3), written);
}

}  // namespace
}  // namespace cxemu
