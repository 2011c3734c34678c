// The command parser: truncated, oversized, unknown and misplaced commands are refused with the
// kernel's error and change nothing.
#include "uverbs/command.h"

#include <gtest/gtest.h>
#include <rdma/mlx5-abi.h>
#include <unistd.h>

#include "uverbs/test/command_builder.h"
#include "uverbs/test/fake_nic.h"

namespace cxemu {
namespace {

class CommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    context_ =
        Context::open(engine_, fabric_.fabric, fabric_.fabric.nic(0, 0), nullptr, pages_.data());
    ASSERT_NE(context_, nullptr);
  }
  void TearDown() override {
    if (async_fd_ >= 0) close(async_fd_);
  }
  int start() {
    ib_uverbs_get_context_resp answer;
    mlx5_ib_alloc_ucontext_resp driver;
    mlx5_ib_alloc_ucontext_req_v2 request{};
    request.total_num_bfregs = 16;
    request.num_low_latency_bfregs = 4;
    const int error = Sender(context_.get())
                          .plain(IB_USER_VERBS_CMD_GET_CONTEXT, ib_uverbs_get_context{}, &answer,
                                 request, &driver);
    if (error == 0) {
      async_fd_ = static_cast<int>(answer.async_fd);
      EXPECT_EQ(driver.cqe_version, 1);
      EXPECT_EQ(driver.response_length, sizeof driver);
    }
    return error;
  }
  TestFabric fabric_;
  FakeEngine engine_;
  TestPages pages_;
  std::unique_ptr<Context> context_;
  int async_fd_ = -1;
};

// A well-formed query_port with `in_words` 4-byte words in and `out_words` out.
std::vector<uint8_t> query_port(uint16_t in_words, uint16_t out_words, void* answer) {
  ib_uverbs_cmd_hdr header{IB_USER_VERBS_CMD_QUERY_PORT, in_words, out_words};
  ib_uverbs_query_port request{};
  request.response = reinterpret_cast<uint64_t>(answer);
  request.port_num = 1;
  std::vector<uint8_t> bytes = bytes_of(header), core = bytes_of(request);
  bytes.insert(bytes.end(), core.begin(), core.end());
  return bytes;
}
constexpr uint16_t kPortIn = (sizeof(ib_uverbs_cmd_hdr) + sizeof(ib_uverbs_query_port)) / 4;
constexpr uint16_t kPortOut = sizeof(ib_uverbs_query_port_resp) / 4;

TEST_F(CommandTest, NothingBeforeGetContextAndGetContextOnlyOnce) {
  ib_uverbs_query_port_resp answer;
  const auto command = query_port(kPortIn, kPortOut, &answer);
  EXPECT_EQ(command_write(*context_, command.data(), command.size()), EINVAL);
  EXPECT_EQ(start(), 0);
  EXPECT_EQ(command_write(*context_, command.data(), command.size()), 0);
  EXPECT_EQ(start(), EINVAL);
}

TEST_F(CommandTest, EveryTruncationIsRefused) {
  ASSERT_EQ(start(), 0);
  ib_uverbs_query_port_resp answer;
  const auto command = query_port(kPortIn, kPortOut, &answer);
  for (size_t length = 0; length < command.size(); ++length)
    EXPECT_NE(command_write(*context_, command.data(), length), 0) << length;
  for (uint16_t words = 0; words < 64; ++words) {
    const auto wrong_in = query_port(words, kPortOut, &answer);
    EXPECT_EQ(command_write(*context_, wrong_in.data(), wrong_in.size()),
              words == kPortIn ? 0 : EINVAL)
        << words;
  }
  for (uint16_t words = 0; words < kPortOut; ++words) {
    const auto wrong_out = query_port(kPortIn, words, &answer);
    EXPECT_EQ(command_write(*context_, wrong_out.data(), wrong_out.size()), ENOSPC) << words;
  }
}

TEST_F(CommandTest, AnAnswerNeedsAnAddress) {
  ASSERT_EQ(start(), 0);
  const auto command = query_port(kPortIn, kPortOut, nullptr);
  EXPECT_EQ(command_write(*context_, command.data(), command.size()), EFAULT);
}

TEST_F(CommandTest, EveryCommandRefusesEveryShorterLength) {
  ASSERT_EQ(start(), 0);
  std::vector<uint8_t> answer(4096);
  for (const auto table : {device_commands(), memory_commands(), cq_commands(), qp_commands()}) {
    for (const Command& command : table) {
      const bool is_extended = command.number & IB_USER_VERBS_CMD_FLAG_EXTENDED;
      const size_t unit = is_extended ? 8 : 4;
      for (size_t in = 0; in * unit < command.core_in; ++in) {
        ib_uverbs_cmd_hdr header{command.number, static_cast<uint16_t>(is_extended ? in : in + 2),
                                 64};
        std::vector<uint8_t> bytes = bytes_of(header);
        if (is_extended) {
          ib_uverbs_ex_cmd_hdr more{reinterpret_cast<uint64_t>(answer.data()), 0, 64, 0};
          const auto part = bytes_of(more);
          bytes.insert(bytes.end(), part.begin(), part.end());
        }
        bytes.resize(bytes.size() + in * unit);
        EXPECT_EQ(command_write(*context_, bytes.data(), bytes.size()), ENOSPC)
            << command.name << " with " << in * unit << " bytes";
      }
    }
  }
}

TEST_F(CommandTest, UnknownCommandsAreNotSupported) {
  ASSERT_EQ(start(), 0);
  std::vector<uint8_t> bytes(256);
  for (const uint32_t number :
       {uint32_t{IB_USER_VERBS_CMD_OPEN_QP}, uint32_t{IB_USER_VERBS_CMD_ATTACH_MCAST}, 200u,
        IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_FLOW,
        IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_WQ,
        IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_CQ}) {
    ib_uverbs_cmd_hdr header{number, static_cast<uint16_t>(bytes.size() / 4), 0};
    memcpy(bytes.data(), &header, sizeof header);
    EXPECT_EQ(command_write(*context_, bytes.data(), bytes.size()), EOPNOTSUPP) << number;
  }
  ib_uverbs_cmd_hdr header{1u << 20, static_cast<uint16_t>(bytes.size() / 4), 0};
  memcpy(bytes.data(), &header, sizeof header);
  EXPECT_EQ(command_write(*context_, bytes.data(), bytes.size()), EINVAL);
}

TEST_F(CommandTest, ExtendedHeadersAreChecked) {
  ASSERT_EQ(start(), 0);
  ib_uverbs_ex_query_device_resp answer{};
  struct {
    ib_uverbs_cmd_hdr header{IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE, 1,
                             sizeof(answer) / 8};
    ib_uverbs_ex_cmd_hdr more{};
    ib_uverbs_ex_query_device request{};
  } command;
  command.more.response = reinterpret_cast<uint64_t>(&answer);
  const auto send = [&](const auto& c) { return command_write(*context_, &c, sizeof c); };
  EXPECT_EQ(send(command), 0);
  EXPECT_EQ(answer.response_length, sizeof answer);
  EXPECT_GT(answer.base.max_srq, 0u);
  EXPECT_EQ(answer.base.max_mcast_grp, 0u);
  auto bad = command;
  bad.more.cmd_hdr_reserved = 1;
  EXPECT_EQ(send(bad), EINVAL);
  bad = command;
  bad.more.provider_in_words = 1;
  EXPECT_EQ(send(bad), EINVAL);
  bad = command;
  bad.more.response = 0;
  EXPECT_EQ(send(bad), EINVAL);
  bad = command;
  bad.request.comp_mask = 1;
  EXPECT_EQ(send(bad), EINVAL);
  bad = command;
  bad.header.out_words = 1;
  EXPECT_EQ(send(bad), ENOSPC);
}

TEST_F(CommandTest, UnknownTailsOfRequestsMustBeZero) {
  ASSERT_EQ(start(), 0);
  ib_uverbs_ex_query_device_resp answer{};
  struct {
    ib_uverbs_ex_query_device request{};
    uint64_t tail = 0;
  } longer;
  Sender sender(context_.get());
  EXPECT_EQ(sender.extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE, longer, &answer), 0);
  longer.tail = 1;
  EXPECT_EQ(sender.extended(IB_USER_VERBS_EX_CMD_QUERY_DEVICE, longer, &answer), EOPNOTSUPP);
}

TEST_F(CommandTest, IoctlInvokesTheSameTable) {
  ASSERT_EQ(start(), 0);
  ib_uverbs_query_port_resp answer{};
  ib_uverbs_query_port request{};
  request.port_num = 1;
  ib_uverbs_ioctl_hdr header{};
  header.length = sizeof header + 3 * sizeof(ib_uverbs_attr);
  header.object_id = UVERBS_OBJECT_DEVICE;
  header.method_id = UVERBS_METHOD_INVOKE_WRITE;
  header.num_attrs = 3;
  std::vector<ib_uverbs_attr> attributes(3);
  attributes[0].attr_id = UVERBS_ATTR_WRITE_CMD;
  attributes[0].len = 8;
  attributes[0].data = IB_USER_VERBS_CMD_QUERY_PORT;
  attributes[1].attr_id = UVERBS_ATTR_CORE_IN;
  attributes[1].len = sizeof request;
  attributes[1].data = reinterpret_cast<uint64_t>(&request);
  attributes[2].attr_id = UVERBS_ATTR_CORE_OUT;
  attributes[2].len = sizeof answer;
  attributes[2].data = reinterpret_cast<uint64_t>(&answer);
  const auto send = [&](const ib_uverbs_ioctl_hdr& h, const std::vector<ib_uverbs_attr>& list) {
    std::vector<uint8_t> call = bytes_of(h);
    for (const auto& attribute : list) {
      const auto bytes = bytes_of(attribute);
      call.insert(call.end(), bytes.begin(), bytes.end());
    }
    return command_ioctl(*context_, RDMA_VERBS_IOCTL, call.data());
  };
  EXPECT_EQ(send(header, attributes), 0);
  EXPECT_EQ(answer.state, IBV_PORT_ACTIVE);
  auto bad_attributes = attributes;
  bad_attributes[2].len = 8;
  EXPECT_EQ(send(header, bad_attributes), ENOSPC);
  bad_attributes = attributes;
  bad_attributes[0].data = IB_USER_VERBS_CMD_ATTACH_MCAST;
  EXPECT_EQ(send(header, bad_attributes), EOPNOTSUPP);
  auto bad_header = header;
  bad_header.method_id = UVERBS_METHOD_GET_CONTEXT;
  EXPECT_EQ(send(bad_header, attributes), EPROTONOSUPPORT);
  bad_header = header;
  bad_header.length = sizeof header;
  EXPECT_EQ(send(bad_header, attributes), EINVAL);
  EXPECT_EQ(command_ioctl(*context_, 0x1234, &header), ENOTTY);
}

TEST_F(CommandTest, PortStateFollowsTheFault) {
  ASSERT_EQ(start(), 0);
  ib_uverbs_query_port_resp answer;
  const auto command = query_port(kPortIn, kPortOut, &answer);
  fabric_.fabric.nic(0, 0)->faults = kLinkDown;
  ASSERT_EQ(command_write(*context_, command.data(), command.size()), 0);
  EXPECT_EQ(answer.state, IBV_PORT_DOWN);
  engine_.log.dead = true;
  EXPECT_EQ(command_write(*context_, command.data(), command.size()), EIO);
}

TEST_F(CommandTest, ADeadNicCannotBeOpened) {
  fabric_.fabric.nic(0, 1)->faults = kDead;
  EXPECT_EQ(
      Context::open(engine_, fabric_.fabric, fabric_.fabric.nic(0, 1), nullptr, pages_.data()),
      nullptr);
}

}  // namespace
}  // namespace cxemu
