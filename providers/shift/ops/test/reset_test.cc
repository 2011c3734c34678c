// A reset begins another life of a QP, in which nothing of the life before is left.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "group/test/fake.h"
#include "ops/entry.h"
#include "ops/test/runtime.h"

namespace shift::ops {
namespace {

using group::Accept;
using group::Life;
using group::Probe;

template <typename T>
std::string bytes(const T& plain) {
  return {reinterpret_cast<const char*>(&plain), sizeof plain};
}

// The fields of one member. They are named one by one, here and below, so that the test does not
// compile with a new field until somebody has looked at it.
auto fields_of_member(const Life& life, int m) {
  const auto& [accept, fault_reported] = life.errors.members[m];
  const auto& [can_send, last_taken, probe, own_packets, last_psn, reached_psn, path_mtu, own] =
      life.members[m];
  const auto& [own_sends, own_receives] = own;
  return std::make_tuple(accept.load(), fault_reported.load(), can_send.load(), last_taken.load(),
                         probe.load(), own_packets.load(), last_psn, reached_psn, path_mtu,
                         own_sends.size(), own_receives.size(), life.remote_keys[m]);
}

// All other fields, without the serial number.
auto fields(const Life& life) {
  const auto& [serial, asked, ends, errors, markers, path, members, control, is_alone, is_self,
               peer_present, unconnected, remote_keys, opcode_of_signaled] = life;
  const auto& [attr, mask] = asked;
  const auto& [local, remote, gid_type] = ends;
  const auto& [error_members, original, doubt, owed, are_given, keeps_refused, flushed, switching] =
      errors;
  const auto& [drained, passed, under_way, posted, awaited] = markers;
  const auto& [member, peer_member, off_default, departures] = path;
  const auto& [state, epoch, sequence, peer_received, peer_responder, asks_responder, is_leader] =
      control;
  return std::make_tuple(bytes(attr), mask, local, remote, gid_type, bytes(original), doubt, owed,
                         are_given, keeps_refused.load(), flushed, switching.load(),
                         drained[0].load(), drained[1].load(), passed.load(), under_way.load(),
                         posted.load(), awaited.load(), member.load(), peer_member,
                         off_default.load(), departures.load(), state.load(), epoch, sequence,
                         peer_received, peer_responder, asks_responder, is_leader, is_alone.load(),
                         is_self.load(), peer_present, unconnected.load(), opcode_of_signaled);
}

// Gives each field a value that no fresh life has.
void wear(Life& life) {
  life.asked.attr.timeout = 7;
  life.asked.mask = IBV_QP_AV;
  life.ends.local.qpn = 5;
  life.ends.remote.qpn = 6;
  life.ends.gid_type = IBV_GID_TYPE_ROCE_V1;
  life.errors.original.status = IBV_WC_RETRY_EXC_ERR;
  life.errors.doubt = {1, 2};
  life.errors.owed = {1, IBV_WC_WR_FLUSH_ERR, 2};
  life.errors.are_given = true;
  life.errors.keeps_refused = true;
  life.errors.flushed.push_back({3, true});
  life.errors.switching = true;
  life.markers.drained[0] = life.markers.drained[1] = true;
  life.markers.under_way = 3;
  life.markers.posted = life.markers.awaited = life.markers.passed = true;
  life.path.member = group::kBackup;
  life.path.peer_member = group::kThird;
  life.path.off_default = true;
  life.path.departures = 4;
  life.is_alone = life.is_self = true;
  life.control.state = fsm::State::kFailed;
  life.control.epoch = 8;
  life.control.sequence = 9;
  life.control.peer_received = 10;
  life.control.peer_responder = 11;
  life.control.asks_responder = false;
  life.control.is_leader = true;
  life.peer_present = true;
  life.unconnected = true;
  life.opcode_of_signaled[1] = IBV_WC_SEND;
  for (int m = 0; m < group::kMembersMax; m++) {
    life.errors.members[m].accept = Accept::kGuard;
    life.errors.members[m].fault_reported = true;
    life.members[m].can_send = life.members[m].last_taken = true;
    life.members[m].probe = Probe::kFailed;
    life.members[m].own_packets = 12;
    life.members[m].last_psn = 13;
    life.members[m].reached_psn = 14;
    life.members[m].path_mtu = 1024;
    life.members[m].own.sends.push_back({15, group::OwnRequest::Kind::kProbe});
    life.members[m].own.receives.push_back({16, group::OwnRequest::Kind::kRecvMarker});
    life.remote_keys[m][group::kRkey] = 14;
  }
}

template <typename Tuple, size_t... i>
void expect_all_differ(const Tuple& a, const Tuple& b, std::index_sequence<i...>) {
  const auto look = [](size_t field, const auto& one, const auto& other) {
    EXPECT_NE(one, other) << "field " << field;
  };
  (look(i, std::get<i>(a), std::get<i>(b)), ...);
}
template <typename... T>
void expect_all_differ(const std::tuple<T...>& a, const std::tuple<T...>& b) {
  expect_all_differ(a, b, std::index_sequence_for<T...>());
}

class Reset : public ::testing::Test {
 protected:
  Reset() { in_use = &runtime_; }
  ~Reset() override { in_use = nullptr; }

  void reset() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    ASSERT_EQ(modify_qp(group_->handle(), &attr, IBV_QP_STATE), 0);
  }

  group::World world_;
  LazyLoop control_, worker_;
  group::FakeCommands commands_{worker_};
  control::Coordinator coordinator_{control_, commands_};
  control::Runtime runtime_{control_, coordinator_};
  group::CompletionQueue* cq_ = world_.make_cq();
  group::Group* group_ = world_.make_group(cq_);
};

TEST_F(Reset, LeavesNothingOfTheLifeBefore) {
  const Life fresh;
  wear(group_->life);
  expect_all_differ(fields(group_->life), fields(fresh));
  for (int m = 0; m < group::kMembersMax; m++) {
    expect_all_differ(fields_of_member(group_->life, m), fields_of_member(fresh, m));
  }
  reset();
  EXPECT_EQ(fields(group_->life), fields(fresh));
  for (int m = 0; m < group::kMembersMax; m++) {
    EXPECT_EQ(fields_of_member(group_->life, m), fields_of_member(fresh, m)) << "member " << m;
  }
}

TEST_F(Reset, EmptiesTheQueues) {
  group::post_send(*group_, 1, IBV_WR_SEND);
  group::post_recv(*group_, 11);
  ASSERT_TRUE(group::fence({group_})[0]);
  group_->send.drained_to = 1;
  group_->send.executed = {1, 1};
  group_->send.sent.known = true;
  group_->counters.done[0] = group_->counters.done[1] = 1;
  ASSERT_NE(group_->send.posted, 0u);
  ASSERT_NE(group_->recv.posted, 0u);
  reset();
  EXPECT_EQ(group_->send.route, group::Route::kOnDefault);
  EXPECT_EQ(group_->recv.route, group::Route::kOnDefault);
  EXPECT_EQ(group_->send.journal.head(), 0u);
  EXPECT_EQ(group_->recv.journal.head(), 0u);
  EXPECT_EQ(group_->send.posted, 0u);
  EXPECT_EQ(group_->recv.posted, 0u);
  EXPECT_EQ(group_->send.drained_to, 0u);
  EXPECT_EQ(group_->send.executed, group::Executed{});
  EXPECT_FALSE(group_->send.sent.known);
  EXPECT_EQ(group_->counters.done[0], 0u);
  EXPECT_EQ(group_->counters.done[1], 0u);
  EXPECT_EQ(cq_->slow_groups, 0);
}

// The answer to a question of the life before, such as the search for the old peer, must not be
// taken for one of the new connection.
TEST_F(Reset, BeginsAnotherLife) {
  const uint64_t before = group_->life.serial;
  reset();
  EXPECT_NE(group_->life.serial, before);
  EXPECT_NE(group_->life.serial, 0u);
}

}  // namespace
}  // namespace shift::ops
