// Tests which datagrams are orders, and who may give them.
#include "state/order_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "state/directory.h"
#include "state/order_send.h"

namespace shift::state {
namespace {

std::optional<Order> parse(std::string_view text) {
  return order_parse(text.data(), text.size());
}

TEST(Orders, AreAFewWords) {
  EXPECT_EQ(parse("look"), Order{});
  EXPECT_EQ(parse("move 0x1f mlx5_0"), (Order{Order::Kind::kMove, 0x1f, "mlx5_0"}));
  EXPECT_EQ(parse("home 0xffffffff a"), (Order{Order::Kind::kHome, 0xffffffff, "a"}));
  EXPECT_EQ(parse("suspect mlx5_0"), (Order{Order::Kind::kSuspect, 0, "mlx5_0"}));
  for (const char* text : {"", "suspect", "suspect ", "suspected a", "look ", "move", "move 0x1f",
                           "move 0x1f ", "move 1f mlx5_0", "moved 0x1 a", "move 0x1ffffffff a",
                           "move 0x a", "home -1 a", "drain mlx5_0"})
    EXPECT_FALSE(parse(text)) << text;
}

class OrderSocketTest : public ::testing::Test {
 protected:
  OrderSocketTest() {
    char name[] = "/tmp/shift-order-XXXXXX";
    folder_ = ::mkdtemp(name);
    EXPECT_EQ(::chmod(folder_.c_str(), 0777), 0);
    path_ = folder_ + "/x.ctl";
    std::string problem;
    EXPECT_TRUE(socket_.open(path_, problem)) << problem;
    EXPECT_EQ(::chmod(path_.c_str(), 0777), 0);
  }
  ~OrderSocketTest() override { std::filesystem::remove_all(folder_); }
  // False: it could not be sent.
  bool send(const std::string& text) const {
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    const ssize_t n = ::sendto(fd, text.data(), text.size(), 0,
                               reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ::close(fd);
    return n >= 0;
  }
  std::optional<Order> take() { return socket_.take(is_empty_); }

  std::string folder_, path_;
  OrderSocket socket_;
  bool is_empty_ = false;
};

TEST_F(OrderSocketTest, TheUserIsHeard) {
  EXPECT_FALSE(take());
  EXPECT_TRUE(is_empty_);
  ASSERT_TRUE(send("look"));
  ASSERT_TRUE(send("nonsense"));
  ASSERT_TRUE(send(std::string(1000, 'x')));
  ASSERT_TRUE(send("move 0x1 a"));
  EXPECT_EQ(take(), Order{});
  EXPECT_FALSE(take());
  EXPECT_FALSE(is_empty_);
  EXPECT_FALSE(take());
  EXPECT_EQ(take(), (Order{Order::Kind::kMove, 1, "a"}));
}

TEST_F(OrderSocketTest, OtherProcessesAreToldAndTheSenderIsNot) {
  std::string problem;
  ASSERT_TRUE(directory_open(folder_, ::geteuid(), true, problem)) << problem;
  const std::string base = user_directory(folder_, ::geteuid());
  OrderSocket own, other, third;
  ASSERT_TRUE(own.open(base + "/1-a.ctl", problem) && other.open(base + "/2-b.ctl", problem) &&
              third.open(base + "/3-c", problem))
      << problem;
  std::ofstream(base + "/4-d.ctl") << "no socket";
  EXPECT_EQ(order_all(folder_, base + "/1-a.ctl", "suspect mlx5_0"), 1);
  EXPECT_EQ(other.take(is_empty_), (Order{Order::Kind::kSuspect, 0, "mlx5_0"}));
  EXPECT_FALSE(own.take(is_empty_));
  EXPECT_FALSE(third.take(is_empty_));
  EXPECT_EQ(order_all(folder_ + "/none", "", "suspect mlx5_0"), 0);
}

TEST_F(OrderSocketTest, NobodyElseIs) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const pid_t child = ::fork();
  if (child == 0) {
    const bool sent = ::setgid(12345) == 0 && ::setuid(12345) == 0 && send("look");
    ::_exit(sent ? 0 : 1);
  }
  int ended = 0;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  ASSERT_EQ(ended, 0) << "the datagram was not sent, so this shows nothing";
  EXPECT_FALSE(take());
  EXPECT_FALSE(is_empty_) << "it came, and was not an order";
}

TEST_F(OrderSocketTest, ALongNameIsAProblem) {
  OrderSocket other;
  std::string problem;
  EXPECT_FALSE(other.open(folder_ + "/" + std::string(120, 'x'), problem));
  EXPECT_NE(problem.find("too long"), std::string::npos);
}

}  // namespace
}  // namespace shift::state
