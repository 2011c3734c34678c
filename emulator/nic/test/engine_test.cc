// The engine's thread over each carrier, and the unix carrier, in real time: engines of several
// "processes" in one process, over sockets. Nothing here depends on how long anything takes, except
// for a deadline that means failure.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "fabric/gid.h"
#include "nic/unix_carrier.h"
#include "real_time.h"
#include "rig.h"

namespace cxemu::test {
namespace {

// A net number that no concurrent test has: names of sockets are global on the machine.
uint32_t net_number() {
  return 1'000'000u + static_cast<uint32_t>(getpid());
}

std::unique_ptr<FabricFile> fabric_make(FabricWire wire) {
  auto fabric = std::make_unique<FabricFile>();
  fabric->net = net_number();
  fabric->wire = wire;
  for (uint32_t host = 0; host < 2; host++) {
    FabricNic& nic = fabric->nic[host * kMaxNicsPerHost];
    // No fabric and no concurrent test has these addresses: ports are global, too.
    nic.ipv4_be = htobe32(127u << 24 | (251 + host) << 16 | (getpid() & 0xffff));
    nic.used = 1;
  }
  return fabric;
}

// An engine with its thread, a NIC and one QP. Calls take the engine's lock, as uverbs does.
struct Station {
  Station(FabricFile& fabric, int slot, FabricNic& own)
      : engine(Engine::start(fabric, slot)), fabric_nic(own) {
    const std::lock_guard guard(engine->lock());
    nic = engine->nic_open(&fabric_nic, &events);
    cq.emplace(*nic, events);
    qp.emplace(*nic, events, *cq, *cq);
    qp->attr.timeout = 14;  // half a second in all: the peer may have to wait long for a core
  }
  ~Station() {
    if (!engine) return;
    const std::lock_guard guard(engine->lock());
    nic.reset();
  }
  void connect(const Station& other) {
    const std::lock_guard guard(engine->lock());
    ASSERT_EQ(qp->to_init(), 0);
    ibv_qp_attr attr = qp->attr;
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_4096;
    attr.dest_qp_num = other.qp->number();
    attr.rq_psn = other.qp->attr.sq_psn;
    attr.ah_attr.is_global = 1;
    nic_gid(other.fabric_nic, 3, attr.ah_attr.grh.dgid.raw);
    ASSERT_EQ(
        qp->modify(attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(qp->modify(attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                   IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
              0);
  }

  Events events;
  std::unique_ptr<Engine> engine;
  FabricNic& fabric_nic;
  std::unique_ptr<Nic> nic;
  std::optional<TestCq> cq;
  std::optional<TestQp> qp;
};

class EngineThreads : public ::testing::TestWithParam<FabricWire> {
 protected:
  EngineThreads() {
    a_.emplace(*fabric_, 1, fabric_->nic[0]);
    b_.emplace(*fabric_, 2, fabric_->nic[kMaxNicsPerHost]);
    a_->connect(*b_);
    b_->connect(*a_);
    const std::lock_guard guard_a(a_->engine->lock());
    const std::lock_guard guard_b(b_->engine->lock());
    from_.emplace(*a_->nic, kSize);
    to_.emplace(*b_->nic, kSize);
    for (size_t i = 0; i < kSize; i++) from_->bytes[i] = static_cast<uint8_t>(i * 13 + i / 256);
  }

  SendWr write() const {
    return {.opcode = kWqeWrite,
            .sges = {from_->sge(0, kSize)},
            .remote_address = to_->address(),
            .rkey = to_->key};
  }
  // Waits for a completion of side a without driving the engine.
  Completion wait() {
    Completion completion = {};
    EXPECT_TRUE(eventually([&] {
      const auto one = a_->cq->poll();
      if (one) completion = *one;
      return one.has_value();
    }));
    return completion;
  }

  static constexpr uint32_t kSize = 1 << 20;
  std::unique_ptr<FabricFile> fabric_ = fabric_make(GetParam());
  // The engines are destroyed first: they use the memory until then.
  std::optional<TestMr> from_, to_;
  std::optional<Station> a_, b_;
};

TEST_P(EngineThreads, DoorbellInMemoryIsEnough) {
  for (int i = 0; i < 20; i++) {
    std::fill(to_->bytes.begin(), to_->bytes.end(), uint8_t{0});
    a_->qp->post_send(write());
    ASSERT_EQ(wait().opcode, kCqeRequester);
    ASSERT_EQ(to_->bytes, from_->bytes);
  }
}

TEST_P(EngineThreads, DrivingApplicationsGetTheSame) {
  for (int i = 0; i < 20; i++) {
    std::fill(to_->bytes.begin(), to_->bytes.end(), uint8_t{0});
    a_->qp->post_send(write());
    std::optional<Completion> one;
    ASSERT_TRUE(eventually([&] {
      one = a_->cq->poll();
      if (!one) a_->engine->drive();
      b_->engine->drive();
      return one.has_value();
    }));
    ASSERT_EQ(to_->bytes, from_->bytes);
  }
}

TEST_P(EngineThreads, DrivenEngineGoesOnWhenTheApplicationStopsDriving) {
  for (int i = 0; i < 50; i++) {
    for (int k = 0; k < 100; k++) a_->engine->drive();
    a_->qp->post_send(write());
    ASSERT_EQ(wait().opcode, kCqeRequester);
  }
}

// The peer's process is gone: packets to it vanish, and the timer detects that.
TEST_P(EngineThreads, DeadPeerEndsInRetryExceeded) {
  b_.reset();
  a_->qp->post_send(write());
  EXPECT_EQ(wait().syndrome, kSyndromeRetryExceeded);
}

// What a process does right before its end must not be lost with its engine.
TEST_P(EngineThreads, FinishReturnsWhenNothingIsLeftToDo) {
  for (int i = 0; i < 20; i++) {
    std::fill(to_->bytes.begin(), to_->bytes.end(), uint8_t{0});
    a_->qp->post_send(write());
    // finish() gives up when the peer does not get a core for a long time.
    ASSERT_TRUE(eventually([&] { return a_->engine->finish(); }));
    ASSERT_EQ(to_->bytes, from_->bytes);
    ASSERT_TRUE(a_->cq->poll().has_value());
  }
}

TEST_P(EngineThreads, FaultIsToldWithoutAnyTraffic) {
  fabric_->nic[0].faults = kLinkDown;
  fabric_->nic[0].generation++;
  a_->engine->wake();
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard guard(a_->engine->lock());
    return !a_->events.async.empty();
  }));
  EXPECT_EQ(a_->events.async[0].type, IBV_EVENT_PORT_ERR);
}

TEST_P(EngineThreads, CommandsGetTheLockUnderLoad) {
  // This keeps the engine's thread busy all the time.
  a_->qp->post_send(write());
  int done = 0;
  for (int i = 0; i < 200; i++) {
    const std::lock_guard guard(a_->engine->lock());
    if (a_->cq->poll()) a_->qp->post_send(write());
    done++;
  }
  EXPECT_EQ(done, 200);
  wait();  // the last WRITE still moves memory that is about to be freed
}

TEST_P(EngineThreads, ForkedChildHasAGoneEngineAndFreeLocks) {
  a_->qp->post_send(write());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // in case the lock is not free
    const std::lock_guard guard(a_->engine->lock());
    const bool good = a_->engine->gone() && a_->nic->dead() && !a_->engine->drive() &&
                      a_->qp->to_state(IBV_QPS_ERR) == EIO;
    // A new engine in the child works.
    auto own = Engine::start(*fabric_, 3);
    _exit(good && own && !own->gone() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(wait().opcode, kCqeRequester) << "the parent goes on";
}

// A child that lives on must not keep the sockets of a dead parent open.
TEST_P(EngineThreads, ForkedChildHoldsNoSocketOfItsParent) {
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(hold[1]);
    char byte;
    [[maybe_unused]] const ssize_t got = read(hold[0], &byte, 1);
    _exit(0);
  }
  b_.reset();
  EXPECT_TRUE(eventually([&] { return Engine::start(*fabric_, 2) != nullptr; }))
      << "the name is not free again";
  close(hold[0]);
  close(hold[1]);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
}

INSTANTIATE_TEST_SUITE_P(Wires, EngineThreads, ::testing::Values(kWireUnix, kWireUdp),
                         [](const auto& wire) { return wire.param == kWireUdp ? "Udp" : "Unix"; });

// ---- The carrier alone.

TEST(UnixCarrierTest, FramesComeWholeAndInOrder) {
  const auto x = UnixCarrier::open(net_number(), 1);
  const auto y = UnixCarrier::open(net_number(), 2);
  ASSERT_TRUE(x && y);
  Collect collect;
  uint32_t sent = 0;
  constexpr uint32_t kFrames = 5000;
  // This is far more than the socket holds, so the sender has to wait now and then.
  ASSERT_TRUE(eventually([&] {
    while (sent < kFrames) {
      const size_t size = 4 + sent % 4000 / 4 * 4;
      uint8_t* out = x->reserve(2, size + 4);
      if (out == nullptr) break;
      memset(out, static_cast<int>(sent), size);
      memcpy(out, &sent, sizeof sent);
      x->commit(sent, ~sent, size, sent % 3 == 0);
      sent++;
    }
    x->flush();
    y->receive(collect, 1 << 16);
    return collect.frames.size() == kFrames;
  }));
  for (uint32_t i = 0; i < kFrames; i++) {
    const auto& frame = collect.frames[i];
    ASSERT_EQ(frame.src, i);
    ASSERT_EQ(frame.dst, ~i);
    ASSERT_EQ(frame.corrupt, i % 3 == 0);
    ASSERT_EQ(frame.packet.size(), 4 + i % 4000 / 4 * 4);
    ASSERT_EQ(memcmp(frame.packet.data(), &i, sizeof i), 0);
    if (frame.packet.size() > 4) {
      ASSERT_EQ(frame.packet.back(), static_cast<uint8_t>(i));
    }
  }
}

TEST(UnixCarrierTest, NobodyThereIsNoError) {
  const auto x = UnixCarrier::open(net_number(), 1);
  for (const int slot : {7, 0, -3, 4000}) {
    ASSERT_NE(x->reserve(slot, 100), nullptr);
    x->commit(1, 2, 100, false);
    EXPECT_FALSE(x->flush());
  }
}

TEST(UnixCarrierTest, PeerThatCameLaterIsFound) {
  const auto x = UnixCarrier::open(net_number(), 1);
  std::unique_ptr<UnixCarrier> y;
  Collect collect;
  for (int i = 0; i < 3; i++) {
    x->reserve(2, 8);
    x->commit(1, 2, 8, false);
    x->flush();
  }
  y = UnixCarrier::open(net_number(), 2);
  EXPECT_TRUE(eventually([&] {
    x->reserve(2, 8);
    x->commit(1, 2, 8, false);
    x->flush();
    y->receive(collect, 1 << 16);
    return !collect.frames.empty();
  }));
  // The same after the peer died and came back.
  y.reset();
  x->reserve(2, 8);
  x->commit(1, 2, 8, false);
  x->flush();
  y = UnixCarrier::open(net_number(), 2);
  collect.frames.clear();
  EXPECT_TRUE(eventually([&] {
    x->reserve(2, 8);
    x->commit(1, 2, 8, false);
    x->flush();
    y->receive(collect, 1 << 16);
    return !collect.frames.empty();
  }));
}

TEST(UnixCarrierTest, TwoOfOneNameAreRefused) {
  const auto x = UnixCarrier::open(net_number(), 1);
  EXPECT_EQ(UnixCarrier::open(net_number(), 1), nullptr);
}

// What another program of the machine sends to the socket changes nothing.
TEST(UnixCarrierTest, MalformedDatagramsAreIgnored) {
  const auto x = UnixCarrier::open(net_number(), 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
  sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = {}};
  const int length = snprintf(name.sun_path + 1, 100, "cxemu-%u-1", net_number());
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&name),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                           static_cast<size_t>(length))),
            0);
  const std::vector<std::vector<uint32_t>> datagrams = {
      {}, {1}, {0xffffffff, 1, 2, 3}, {100, 1, 2}, {0, 1, 2, 0xfffffff0, 1, 2}, {5, 1, 2, 3}};
  for (const auto& words : datagrams) {
    if (words.empty()) continue;
    ASSERT_GT(send(fd, words.data(), words.size() * 4, 0), 0);
  }
  const uint32_t good[] = {4, 11, 22, 33};
  ASSERT_EQ(send(fd, good, sizeof good, 0), static_cast<ssize_t>(sizeof good));
  Collect collect;
  EXPECT_TRUE(eventually([&] {
    x->receive(collect, 1 << 16);
    return !collect.frames.empty() && collect.frames.back().src == 11;
  }));
  EXPECT_EQ(collect.frames.size(), 2u) << "an empty packet, and the good one";
  close(fd);
}

}  // namespace
}  // namespace cxemu::test
