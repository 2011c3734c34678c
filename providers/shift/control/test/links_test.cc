// Tests what network devices and addresses of the NICs do to a group, and what is recorded of each
// switch.
#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/test/two_hosts.h"
#include "util/test/event_sink.h"

namespace shift::control {
namespace {

using group::kBackup;
using group::kDefault;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Network devices of a VLAN have numbers from here on.
constexpr int kTagged = 200;

// The network device of each NIC has the number 100 + member and the NIC's address.
class FakeLinks final : public net::HostLinks {
 public:
  explicit FakeLinks(const bool& foreign) : foreign_(foreign) {}
  std::optional<uint32_t> mask_of(int, uint32_t) override {
    return foreign_ ? std::nullopt : std::optional(htonl(0xffffff00));
  }
  uint16_t vlan_of(int ifindex) override { return ifindex >= kTagged ? 100 : 0; }

 private:
  const bool& foreign_;
};

int ifindex_of(int member) {
  return 100 + member;
}

class Links : public TwoHosts {
 protected:
  Links() {
    test::event_sink_set([this](const char* name, std::initializer_list<EventField> fields) {
      if (std::string_view(name) != "switched") return;
      auto& record = switched_.emplace_back();
      for (const EventField& field : fields) {
        record[field.key] = field.is_text ? std::string(field.text) : std::to_string(field.number);
      }
    });
    for (SimHost* host : {&a_, &b_}) {
      host->coordinator.nics().links_set(std::make_unique<FakeLinks>(foreign_));
      for (int member = 0; member < 3; member++) {
        host->world.nic(member).ifindex = static_cast<uint32_t>(ifindex_of(member));
        host->device_says(member, IBV_EVENT_GID_CHANGE);
      }
    }
    run(milliseconds(100));
  }
  ~Links() override { test::event_sink_set({}); }

  void carrier(SimHost& host, int member, bool up) {
    host.coordinator.nics().link_state(ifindex_of(member), up);
  }
  int64_t number(const std::map<std::string, std::string>& record, const char* key) {
    return std::stoll(record.at(key));
  }

  bool foreign_ = false;
  std::vector<std::map<std::string, std::string>> switched_;
};

TEST_F(Links, ALostCarrierMovesBothEndsAndItsReturnBringsThemBack) {
  for (SimHost* host : {&leader(), &follower()}) {
    const uint32_t epoch = a_.group->life.control.epoch;
    traffic(5);
    carrier(*host, kDefault, false);
    traffic(5);
    EXPECT_EQ(a_.group->life.control.epoch, epoch + 1);
    run(seconds(5));
    EXPECT_NE(a_.group->life.path.member, kDefault);
    carrier(*host, kDefault, true);
    run(seconds(3));
    EXPECT_EQ(a_.group->life.path.member, kDefault);
  }
  run(milliseconds(10));
  expect_all_done();
}

TEST_F(Links, WhatThePortEventHasToldIsNoNews) {
  a_.port(kDefault, false);
  run(milliseconds(20));
  ASSERT_EQ(a_.group->life.control.epoch, 1u);
  carrier(a_, kDefault, false);
  run(milliseconds(20));
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
  // Port and carrier must both be good again.
  a_.port(kDefault, true);
  run(seconds(5));
  EXPECT_NE(a_.group->life.path.member, kDefault);
  carrier(a_, kDefault, true);
  run(seconds(3));
  expect_on(kDefault, 2);
}

TEST_F(Links, AFlappingCarrierIsGoneBackToWhenItHasBeenGoodForLongEnough) {
  for (int i = 0; i < 20; i++) {
    carrier(b_, kDefault, false);
    run(milliseconds(200));
    carrier(b_, kDefault, true);
    run(milliseconds(400));
    EXPECT_EQ(a_.group->life.control.epoch, 1u);
  }
  run(seconds(2));
  expect_on(kDefault, 2);
}

TEST_F(Links, ADeviceOfAnotherNamespaceIsNotOurs) {
  foreign_ = true;
  a_.device_says(kDefault, IBV_EVENT_GID_CHANGE);
  carrier(a_, kDefault, false);
  run(milliseconds(100));
  expect_on(kDefault, 0);
  // A device that holds none of the NICs' addresses does not count, either.
  foreign_ = false;
  a_.device_says(kDefault, IBV_EVENT_GID_CHANGE);
  carrier(a_, kDefault, true);
  a_.coordinator.nics().link_state(7, false);
  run(milliseconds(100));
  expect_on(kDefault, 0);
}

TEST_F(Links, ADeviceThatIsDeletedTakesItsCarrierAlong) {
  a_.coordinator.nics().link_gone(ifindex_of(kDefault));
  run(milliseconds(20));
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
  // The device's number is kept in mind until no address of a NIC is on the device any more.
  EXPECT_EQ(a_.coordinator.nics().carrierless_count(), 1u);
  carrier(a_, kDefault, true);  // the device comes back from another network namespace
  run(seconds(3));
  expect_on(kDefault, 2);
  a_.coordinator.nics().link_gone(ifindex_of(kDefault));
  run(milliseconds(20));
  a_.world.nic(kDefault).ifindex = 200;
  a_.device_says(kDefault, IBV_EVENT_GID_CHANGE);
  run(seconds(3));
  expect_on(kDefault, 4);
  EXPECT_EQ(a_.coordinator.nics().carrierless_count(), 0u);
}

// Each container has its own veth device, which is down when it is made, and again before it is
// deleted.
TEST_F(Links, DeletedDevicesAreNotKeptInMind) {
  constexpr int kFirst = 1000;
  for (int pod = kFirst; pod < kFirst + 500; pod++) {
    a_.coordinator.nics().link_state(pod, false);
    a_.coordinator.nics().link_state(pod, true);
    a_.coordinator.nics().link_state(pod, false);
    if (pod != kFirst) a_.coordinator.nics().link_gone(pod);
  }
  EXPECT_EQ(a_.coordinator.nics().carrierless_count(), 1u) << "one is still there";
  expect_on(kDefault, 0);
}

TEST_F(Links, ANicWithoutCarrierIsNotChosen) {
  carrier(a_, kBackup, false);
  run(milliseconds(100));
  a_.port(kDefault, false);
  run(milliseconds(20));
  expect_on(group::kThird, 1);
}

TEST_F(Links, AnAddressThatIsGoneTakesItsPathAlong) {
  const wire::Gid gid = std::exchange(b_.world.nic(kDefault).gid, wire::Gid{});
  // Here the GID table has changed before the kernel tells of the address.
  b_.coordinator.nics().address_changed(ifindex_of(kDefault));
  run(milliseconds(20));
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
  b_.world.nic(kDefault).gid = gid;
  b_.device_says(kDefault, IBV_EVENT_GID_CHANGE);
  run(seconds(3));
  expect_on(kDefault, 2);
}

TEST_F(Links, AnAddressThatMovesWithinTheTableBreaksWhatNamedItsPlace) {
  b_.world.nic(kDefault).gid_index = 5;
  b_.device_says(kDefault, IBV_EVENT_GID_CHANGE);
  run(milliseconds(20));
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
  run(seconds(3));
  expect_on(kDefault, 2);
}

TEST_F(Links, ATableThatFollowsTheAddressLateIsReadAgain) {
  b_.coordinator.nics().address_changed(ifindex_of(kDefault));
  b_.world.nic(kDefault).gid = {};
  run(milliseconds(5));
  EXPECT_EQ(a_.group->life.control.epoch, 0u);
  run(milliseconds(20));
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
}

TEST_F(Links, ASpareWhoseAddressChangesIsConnectedAnew) {
  const int spare = a_.qp(kBackup).qp.state == IBV_QPS_RTS ? kBackup : group::kThird;
  for (SimHost* host : {&leader(), &follower()}) {
    const size_t steps = leader().qp(spare).walk.size();
    wire::Gid& gid = host->world.nic(spare).gid;
    const wire::Gid old = gid;
    gid = wire::Gid::from_ipv4(*old.ipv4() ^ 0x01000000u);
    host->device_says(spare, IBV_EVENT_GID_CHANGE);
    run(milliseconds(50));
    EXPECT_GT(leader().qp(spare).walk.size(), steps);
    EXPECT_EQ(leader().qp(spare).qp.state, IBV_QPS_RTS);
    const auto& route = (host == &leader() ? follower() : leader()).qp(spare).attr.ah_attr.grh;
    EXPECT_EQ(wire::Gid::from_verbs(route.dgid), gid);
  }
  a_.port(kDefault, false);
  run(milliseconds(20));
  expect_on(spare, 1);
}

// Each NIC has addresses in other networks, which its GID table names first.
TEST_F(Links, ASpareUsesTheNetworkThatTheApplicationChose) {
  for (SimHost* host : {&a_, &b_}) {
    for (const int member : {kBackup, group::kThird}) {
      auto& nic = host->world.nic(member);
      const auto elsewhere = wire::Gid::from_ipv4(*nic.gid.ipv4() ^ htonl(0x100));
      nic.decoys = {{elsewhere, nic.gid_index + 1, static_cast<uint32_t>(kTagged + member)}};
      host->device_says(member, IBV_EVENT_GID_CHANGE);
    }
  }
  // This makes the spare anew.
  for (const int member : {kBackup, group::kThird}) {
    a_.port(member, false);
    run(milliseconds(20));
    a_.port(member, true);
  }
  run(seconds(3));
  a_.port(kDefault, false);
  run(milliseconds(20));
  EXPECT_EQ(a_.group->life.control.epoch, 1u);
  EXPECT_EQ(a_.group->life.control.state, fsm::State::kActive);
  const int spare = a_.group->life.path.member;
  EXPECT_NE(spare, kDefault);
  for (SimHost* host : {&a_, &b_}) {
    SimHost& peer = host == &a_ ? b_ : a_;
    const auto& route = host->qp(spare).attr.ah_attr.grh;
    EXPECT_EQ(wire::Gid::from_verbs(route.dgid), peer.world.nic(spare).gid);
  }
}

// Otherwise every address that a NIC ever had would be dialed for ever.
TEST_F(Links, ConnectionsAreKeptBetweenTheAddressesOfNow) {
  const Delegate& leads = leader().coordinator;
  ASSERT_EQ(network_.paths_of(leads).size(), 9u);
  for (SimHost* host : {&leader(), &follower()}) {
    wire::Gid& gid = host->world.nic(kBackup).gid;
    const uint32_t old = *gid.ipv4(), next = old ^ 0x01000000u;
    gid = wire::Gid::from_ipv4(next);
    host->device_says(kBackup, IBV_EVENT_GID_CHANGE);
    run(milliseconds(50));
    const auto paths = network_.paths_of(leads);
    EXPECT_EQ(paths.size(), 9u);
    const auto count = [&](uint32_t ip) {
      return std::ranges::count_if(
          paths, [&](const auto& path) { return path.first == ip || path.second == ip; });
    };
    EXPECT_EQ(count(old), 0);
    EXPECT_EQ(count(next), 3);
  }
  EXPECT_TRUE(network_.paths_of(follower().coordinator).empty()) << "one end dials";
  leader().coordinator.group_forget(leader().group);
  EXPECT_TRUE(network_.paths_of(leads).empty());
}

TEST_F(Links, TheRecordOfASwitchTellsWhoNoticedAndWhen) {
  carrier(a_, kDefault, false);
  const auto broken = time_.now();
  run(milliseconds(20));
  ASSERT_EQ(switched_.size(), 2u);
  for (const auto& record : switched_) {
    const bool peer = record.at("detector") == "peer";
    EXPECT_TRUE(peer || record.at("detector") == "link-state") << record.at("detector");
    const auto evidence = std::chrono::nanoseconds(number(record, "evidence_ns"));
    if (!peer) {
      EXPECT_EQ(evidence, broken.time_since_epoch());
    }
    const auto end = std::chrono::nanoseconds(number(record, "end_ns"));
    EXPECT_GE(end, evidence);
    EXPECT_EQ(number(record, "notice_us") + number(record, "us"), (end - evidence).count() / 1000);
  }
  EXPECT_NE(switched_[0].at("detector"), switched_[1].at("detector"));
}

TEST_F(Links, EveryDetectorHasItsNameInTheRecord) {
  struct Case {
    const char* detector;
    std::function<void()> breaks;
    std::function<void()> heals;
  };
  const wire::Gid gid = a_.world.nic(kDefault).gid;
  const Case cases[] = {
      {"port-event", [&] { a_.port(kDefault, false); }, [&] { a_.port(kDefault, true); }},
      {"completion",
       [&] {
         follower().port(kDefault, false, false);
         receive(leader());
         send(follower());
       },
       [&] { follower().port(kDefault, true, false); }},
      {"post",
       [&] {
         a_.qp(kDefault).post_error = EIO;
         ibv_send_wr wr{}, *bad;
         wr.opcode = IBV_WR_RDMA_WRITE;
         EXPECT_EQ(ops::post_send(a_.group->handle(), &wr, &bad), EIO);
         a_.qp(kDefault).post_error = 0;
       },
       [] {}},
      {"address",
       [&] {
         a_.world.nic(kDefault).gid = {};
         a_.device_says(kDefault, IBV_EVENT_GID_CHANGE);
       },
       [&] {
         a_.world.nic(kDefault).gid = gid;
         a_.device_says(kDefault, IBV_EVENT_GID_CHANGE);
       }},
      // This case is the last one, because a device that died is not used again.
      {"device-event", [&] { a_.device_says(kDefault, IBV_EVENT_DEVICE_FATAL); }, [] {}},
  };
  for (const Case& each : cases) {
    switched_.clear();
    each.breaks();
    run(milliseconds(300));
    ASSERT_EQ(switched_.size(), 2u) << each.detector;
    const auto named = [&](const char* detector) {
      return std::ranges::count_if(
          switched_, [&](const auto& record) { return record.at("detector") == detector; });
    };
    EXPECT_EQ(named(each.detector), 1)
        << switched_[0].at("detector") << " and " << switched_[1].at("detector");
    EXPECT_EQ(named("peer"), 1);
    switched_.clear();
    each.heals();
    run(seconds(15));
    if (std::string_view(each.detector) == "device-event") break;
    ASSERT_EQ(switched_.size(), 2u) << each.detector;
    EXPECT_EQ(named("probe"), 1);
  }
}

}  // namespace
}  // namespace shift::control
