// Two hosts of three NICs each, or of more, connected by one QP pair or more, with two
// coordinators: everything but the NICs, the network and the time is the product.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "control/test/fake_fabric.h"
#include "control/test/host.h"
#include "ops/entry.h"
#include "ops/tables.h"

namespace shift::control {

struct SimHost : Host {
  SimHost(VirtualTime& time, MemoryNetwork& network, FakeFabric& fabric, SinkOfHosts& sinks,
          uint8_t net, int nics, int pairs)
      : Host(time, network, sinks, net, nics, pairs) {
    fabric.world_add(world);
  }

  // The application posts numbered SENDs and receives, and remembers what completes.
  uint64_t sent = 0, receives = 0;
  std::vector<uint64_t> sends_done, receives_done;
  std::vector<ibv_wc> errors;
};

class TwoHosts : public ::testing::Test {
 protected:
  static constexpr uint64_t kReceiveTag = 1u << 20;

  // `nics_of_b`: 0 for as many as the other host has.
  explicit TwoHosts(int pairs = 1, int nics = 3, int nics_of_b = 0)
      : pairs_(pairs), nics_(nics), nics_of_b_(nics_of_b != 0 ? nics_of_b : nics) {
    group::fault_sink = &sinks_;
    for (size_t pair = 0; pair < a_.groups.size(); pair++) {
      a_.connect(b_, 1000, 2000, pair);
      b_.connect(a_, 2000, 1000, pair);
      a_.coordinator.group_add(a_.groups[pair]);
      b_.coordinator.group_add(b_.groups[pair]);
    }
    fabric_.executed = [this](const group::FakeQp& from, uint64_t wr_id, const group::FakeQp&) {
      executed_[from.qp.context].push_back(wr_id);
    };
  }
  ~TwoHosts() override {
    for (SimHost* host : {&a_, &b_}) host->forget();
    time_.drop_all();
    group::fault_sink = nullptr;
  }

  SimHost& leader() { return a_.group->life.control.is_leader ? a_ : b_; }
  SimHost& follower() { return a_.group->life.control.is_leader ? b_ : a_; }

  void post(SimHost& host, ibv_wr_opcode opcode, uint32_t lkey = group::kLkey,
            unsigned flags = IBV_SEND_SIGNALED) {
    ibv_sge sge{0x5000, 8, lkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = ++host.sent;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = flags;
    if (opcode == IBV_WR_RDMA_WRITE) wr.wr.rdma = {0x7000, group::kRkey};
    ASSERT_EQ(ops::post_send(host.group->handle(), &wr, &bad), 0);
  }
  void send(SimHost& host, int count = 1) {
    for (; count > 0; count--) post(host, IBV_WR_SEND);
  }
  // Writes into memory of the peer, which takes a key.
  void write(SimHost& host) { post(host, IBV_WR_RDMA_WRITE); }
  void receive(SimHost& host, int count = 1, uint32_t lkey = group::kLkey) {
    for (; count > 0; count--) {
      ibv_sge sge{0x6000, 8, lkey};
      ibv_recv_wr wr{kReceiveTag + ++host.receives, nullptr, &sge, 1}, *bad;
      ASSERT_EQ(ops::post_recv(host.group->handle(), &wr, &bad), 0);
    }
  }
  void poll(SimHost& host) {
    ibv_wc wc[16];
    for (int got; (got = ops::poll_cq(&host.cq->cq, 16, wc)) > 0;) {
      for (int i = 0; i < got; i++) {
        if (wc[i].status != IBV_WC_SUCCESS) {
          host.errors.push_back(wc[i]);
        } else if (wc[i].wr_id > kReceiveTag) {
          host.receives_done.push_back(wc[i].wr_id - kReceiveTag);
        } else {
          host.sends_done.push_back(wc[i].wr_id);
        }
      }
    }
  }
  // Both applications poll all the time.
  void run(std::chrono::microseconds span) {
    constexpr std::chrono::microseconds kPoll{50};
    for (; span.count() > 0; span -= kPoll) {
      time_.run_for(kPoll);
      poll(a_);
      poll(b_);
    }
  }
  // Sends so many messages in each direction, and lets time pass after each.
  void traffic(int messages) {
    for (; messages > 0; messages--) {
      receive(a_);
      receive(b_);
      send(a_);
      send(b_);
      run(std::chrono::microseconds(200));
    }
  }
  // C1, C2: everything completed once and in order, and nothing else completed.
  void expect_all_done() {
    for (SimHost* host : {&a_, &b_}) {
      const SimHost& peer = host == &a_ ? b_ : a_;
      EXPECT_TRUE(host->errors.empty()) << host->errors.front().status;
      ASSERT_EQ(host->sends_done.size(), host->sent);
      ASSERT_EQ(host->receives_done.size(), peer.sent);
      for (size_t i = 0; i < host->sent; i++) ASSERT_EQ(host->sends_done[i], i + 1);
      for (size_t i = 0; i < peer.sent; i++) ASSERT_EQ(host->receives_done[i], i + 1);
    }
  }
  void expect_on(int member, int times) {
    for (SimHost* host : {&a_, &b_}) {
      EXPECT_EQ(host->group->life.control.state, fsm::State::kActive)
          << fsm::to_string(host->group->life.control.state);
      EXPECT_EQ(host->group->life.path.member, member);
      EXPECT_EQ(host->group->life.path.peer_member, member);
      EXPECT_EQ(host->group->life.control.epoch, static_cast<uint32_t>(times));
    }
  }

  const int pairs_, nics_, nics_of_b_;
  VirtualTime time_;
  MemoryNetwork network_{time_};
  FakeFabric fabric_{time_};
  SinkOfHosts sinks_;
  SimHost a_{time_, network_, fabric_, sinks_, 1, nics_, pairs_};
  SimHost b_{time_, network_, fabric_, sinks_, 2, nics_of_b_, pairs_};
  std::map<const ibv_context*, std::vector<uint64_t>> executed_;  // by the sending NIC
};

// Two hosts whose ends have met and have a spare path.
class Rounds : public TwoHosts {
 protected:
  explicit Rounds(int pairs = 1) : TwoHosts(pairs) { run(std::chrono::milliseconds(100)); }
};

}  // namespace shift::control
