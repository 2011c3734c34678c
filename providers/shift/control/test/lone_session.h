// What a session needs, in memory: a channel that keeps what is sent, a network whose questions the
// test answers, and a machine that keeps what is fed.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "control/error_watch.h"
#include "control/jobs.h"
#include "control/nic_watch.h"
#include "control/orders.h"
#include "control/read_backs.h"
#include "control/reporter.h"
#include "control/session.h"
#include "control/sessions.h"
#include "control/turns.h"
#include "group/port.h"
#include "group/test/fake.h"
#include "group/test/fake_commands.h"
#include "net/network.h"
#include "net/test/virtual_loop.h"

namespace shift::control {

using AddressPair = std::pair<uint32_t, uint32_t>;

struct FakeChannel final : net::PeerChannel {
  bool is_self() const noexcept override { return false; }
  bool is_at(uint32_t ip_be) const override { return !is_elsewhere || elsewhere == ip_be; }
  bool is_keyed() const noexcept override { return keyed; }
  size_t send(const wire::Message& message) override {
    sent.push_back(message);
    return 1;
  }
  bool keep_connection(uint32_t local_ip_be, uint32_t remote_ip_be) override {
    if (kept.size() == most) return false;
    kept.emplace_back(local_ip_be, remote_ip_be);
    return true;
  }
  void drop_connection(uint32_t local_ip_be, uint32_t remote_ip_be) override {
    const auto found = std::ranges::find(kept, AddressPair(local_ip_be, remote_ip_be));
    ASSERT_NE(found, kept.end()) << "dropped, but not kept";
    kept.erase(found);
  }
  // The only address at which it is, if `is_elsewhere`; otherwise it is at all of them.
  uint32_t elsewhere = 0;
  bool is_elsewhere = false;
  bool keyed = false;
  // The sent messages of one kind.
  template <typename Message>
  std::vector<Message> all() const {
    std::vector<Message> found;
    for (const wire::Message& message : sent) {
      if (const auto* one = std::get_if<Message>(&message)) found.push_back(*one);
    }
    return found;
  }

  size_t most = 64;
  std::vector<AddressPair> kept;
  std::vector<wire::Message> sent;
};

// Keeps the questions; the test answers them.
struct FakeNetwork final : net::PeerNetwork {
  void add_address(uint32_t) override {}
  void find_peer(const net::FindRequest& request, net::FindCallback callback) override {
    requests.push_back(request);
    callbacks.push_back(std::move(callback));
  }
  void find_address(uint32_t, const wire::Gid&, AddressCallback callback) override {
    link_asked.push_back(std::move(callback));
  }
  bool look_up(const wire::Gid&, net::StoredCallback then) override {
    store_asked.push_back(std::move(then));
    return true;
  }
  void retry_connections() override { retries++; }
  void answer(net::PeerChannel* channel, net::FindError error = net::FindError::kNone) {
    const auto callback = std::move(callbacks.back());
    callbacks.pop_back();
    callback(channel, error);
  }
  std::vector<net::FindRequest> requests;
  std::vector<net::FindCallback> callbacks;
  std::vector<AddressCallback> link_asked;
  std::vector<net::StoredCallback> store_asked;
  int retries = 0;
};

struct NoSink final : NicSink {
  void nic_lost(group::Context*, int, group::Cause) override {}
  void nic_late(group::Context*, int) override {}
  void nic_back(group::Context*, int) override {}
  void address_lost(group::Context*, int, const wire::Gid&, group::Cause) override {}
  void addresses_changed(group::Context*, int, const std::vector<wire::Gid>&) override {}
};

// Keeps what is fed. The test sets the state.
struct FakeMachine final : Machine {
  void feed(Session&, const Input& input) override { inputs.push_back(input); }
  std::vector<fsm::Event> events() const {
    std::vector<fsm::Event> all;
    for (const Input& input : inputs) all.push_back(input.event);
    return all;
  }
  std::vector<Input> inputs;
};

// Sessions without a coordinator, so that each part of a session can be tested alone. Each session
// is the leader's, and has a channel to its peer.
class SessionTest : public ::testing::Test {
 protected:
  explicit SessionTest(int members = 2) : world_(1, members) {
    group::fault_sink = &world_.sink;
    group::command_threads = &commands_;
    nics_.network_set(&network_);
    nics_.context_add(&world_.context, group::ports_up(world_.context));
  }
  ~SessionTest() override {
    time_.drop_all();  // a job that has not ended holds its group
    group::fault_sink = nullptr;
  }

  Session& make(group::World::Options options = {}, bool is_self = false) {
    group::Group* group = world_.make_group(cq_, cq_, options);
    group->life.serial = ++serial_;
    group->life.ends.remote = {wire::Gid::from_ipv4(0x01000002), 0x700 + serial_};
    if (is_self) group->life.ends.remote = group->life.ends.local;
    group->life.control.is_leader = true;
    Session& session = sessions_.add(std::make_unique<Session>(*group, shared_));
    session.search.take_channel(&channel_);
    channel_.sent.clear();
    return session;
  }
  void run_for(std::chrono::microseconds span) { time_.run_for(span); }

  net::VirtualTime time_;
  net::VirtualLoop loop_{time_};
  group::FakeCommands commands_{loop_};
  group::World world_;
  group::CompletionQueue* cq_ = world_.make_cq();
  FakeNetwork network_;
  NoSink no_sink_;
  FakeMachine machine_;
  FakeChannel channel_;
  NicWatch nics_{loop_, no_sink_};
  NicPairs pairs_;
  Sessions sessions_;
  LateNics late_{loop_, nics_};
  Jobs jobs_{loop_, sessions_, late_};
  Turns turns_{loop_, [](uint64_t) {}, [] { return 32; }};
  Shares shares_;
  ErrorWatch errors_{loop_, sessions_, jobs_};
  ReadBacks read_backs_;
  Lines lines_{loop_};
  struct NoOrders final : OrderSink {
    void nic_suspected(const std::string&) override {}
    void drained_changed(group::Context*) override {}
  } no_orders_;
  Orders orders_{loop_, sessions_, no_orders_};
  Reporter reporter_{loop_, sessions_, nics_, orders_};
  Shared shared_{loop_,  network_, machine_, sessions_, jobs_,       nics_,  pairs_,
                 turns_, turns_,   shares_,  errors_,   read_backs_, lines_, reporter_};
  uint32_t serial_ = 0;
};

}  // namespace shift::control
