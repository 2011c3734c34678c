#include "control/nic_watch.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "control/test/lone_session.h"
#include "group/test/fake_commands.h"

namespace shift::control {
namespace {

using group::Context;
using group::kBackup;
using group::kDefault;
using std::chrono::milliseconds;

constexpr int kIfindex = 7;  // of the default's network device

// Keeps what the watch tells, in words.
struct FakeSink final : NicSink {
  void nic_lost(Context*, int member, group::Cause cause) override {
    told.push_back(std::to_string(member) + " lost: " + cause.text);
  }
  void nic_late(Context*, int member) override { told.push_back(std::to_string(member) + " late"); }
  void nic_back(Context*, int member) override { told.push_back(std::to_string(member) + " back"); }
  void address_lost(Context*, int member, const wire::Gid&, group::Cause) override {
    told.push_back(std::to_string(member) + " lost an address");
  }
  void addresses_changed(Context*, int member, const std::vector<wire::Gid>& gone) override {
    told.push_back(std::to_string(member) + " changed, gone: " + std::to_string(gone.size()));
  }
  std::vector<std::string> told;
};

struct FakeLinks final : net::HostLinks {
  explicit FakeLinks(const std::map<int, uint16_t>& vlans) : vlans_(vlans) {}
  std::optional<uint32_t> mask_of(int ifindex, uint32_t) override {
    if (ifindex != kIfindex && !vlans_.contains(ifindex)) return std::nullopt;
    return htonl(0xffffff00);
  }
  uint16_t vlan_of(int ifindex) override {
    return vlans_.contains(ifindex) ? vlans_.at(ifindex) : uint16_t{0};
  }

 private:
  const std::map<int, uint16_t>& vlans_;
};

wire::Gid address(uint8_t subnet, uint8_t host) {
  return wire::Gid::from_ipv4(htonl(127u << 24 | 1u << 16 | uint32_t{subnet} << 8 | host));
}

class NicWatchTest : public ::testing::Test {
 protected:
  NicWatchTest() {
    nics_.network_set(&network_);
    nics_.links_set(std::make_unique<FakeLinks>(vlans_));
    world_.nic(kDefault).ifindex = kIfindex;
    nics_.context_add(context_, group::ports_up(*context_));
  }
  std::vector<std::string> told() { return std::exchange(sink_.told, {}); }
  using Told = std::vector<std::string>;

  net::VirtualTime time_;
  net::VirtualLoop loop_{time_};
  std::map<int, uint16_t> vlans_;  // of further network devices of the host
  group::World world_{1, 2};
  Context* context_ = &world_.context;
  FakeNetwork network_;
  FakeSink sink_;
  NicWatch nics_{loop_, sink_};
};

TEST_F(NicWatchTest, ThePortsAreAskedAtTheBeginning) {
  EXPECT_EQ(nics_.up(context_), 0b11);
  group::World other(2, 2);
  other.nic(kBackup).port_up = false;
  nics_.context_add(&other.context, group::ports_up(other.context));
  EXPECT_EQ(nics_.up(&other.context), 0b01);
  nics_.context_forget(&other.context);
  EXPECT_EQ(nics_.up(&other.context), 0) << "it is not watched any more";
  EXPECT_TRUE(told().empty());
}

TEST_F(NicWatchTest, APortGoesAndComes) {
  nics_.port_down(context_, kBackup);
  EXPECT_EQ(nics_.up(context_), 0b01);
  EXPECT_FALSE(nics_.is_up(context_, kBackup));
  nics_.port_up(context_, kBackup);
  nics_.port_up(context_, kBackup);
  EXPECT_EQ(nics_.up(context_), 0b11);
  EXPECT_EQ(told(), (Told{"1 lost: port down", "1 back"}));
}

TEST_F(NicWatchTest, ADeadDeviceStaysDead) {
  context_->members[kBackup].dead = true;
  nics_.device_died(context_, kBackup);
  nics_.port_up(context_, kBackup);
  EXPECT_EQ(nics_.up(context_), 0b01);
  EXPECT_EQ(told(), Told{"1 lost: device fatal"});
}

TEST_F(NicWatchTest, ANicWithoutCarrierIsOfNoUse) {
  nics_.link_state(kIfindex, false);
  nics_.link_state(kIfindex, false);
  EXPECT_EQ(nics_.up(context_), 0b10);
  nics_.port_down(context_, kDefault);
  nics_.port_up(context_, kDefault);
  EXPECT_EQ(told(), (Told{"0 lost: no carrier", "0 lost: port down"})) << "the carrier is missing";
  nics_.link_state(kIfindex, true);
  EXPECT_EQ(nics_.up(context_), 0b11);
  EXPECT_EQ(told(), Told{"0 back"});
}

TEST_F(NicWatchTest, WhatThePortHasToldIsNoNews) {
  nics_.port_down(context_, kDefault);
  (void)told();
  nics_.link_state(kIfindex, false);
  nics_.link_state(kIfindex, true);
  EXPECT_TRUE(told().empty());
  nics_.port_up(context_, kDefault);
  EXPECT_EQ(told(), Told{"0 back"});
}

TEST_F(NicWatchTest, AnotherNicsDeviceIsNotOurs) {
  nics_.link_state(kIfindex + 1, false);
  EXPECT_EQ(nics_.up(context_), 0b11);
  EXPECT_TRUE(told().empty());
}

TEST_F(NicWatchTest, ANumberIsKeptOnlyWhileAnAddressIsOnIt) {
  nics_.link_gone(kIfindex + 1);
  EXPECT_EQ(nics_.carrierless_count(), 0u) << "no NIC's";
  nics_.link_gone(kIfindex);
  EXPECT_EQ(nics_.carrierless_count(), 1u);
  EXPECT_EQ(nics_.up(context_), 0b10);
  nics_.context_forget(context_);
  EXPECT_EQ(nics_.carrierless_count(), 0u);
}

TEST_F(NicWatchTest, AnAddressThatMovesIsGoneFromItsPlace) {
  nics_.gids_changed(context_, kDefault);
  EXPECT_TRUE(told().empty()) << "nothing has changed";
  world_.nic(kDefault).gid_index++;
  nics_.gids_changed(context_, kDefault);
  EXPECT_EQ(told(), Told{"0 changed, gone: 1"});
}

// The kernel changes its GID table some time after it has told of the address.
TEST_F(NicWatchTest, TheTableIsReadAgainLater) {
  nics_.address_changed(kIfindex);
  EXPECT_TRUE(told().empty());
  world_.nic(kDefault).gid_index++;
  time_.run_for(milliseconds(9));
  EXPECT_TRUE(told().empty());
  time_.run_for(milliseconds(2));
  EXPECT_EQ(told(), Told{"0 changed, gone: 1"});
  world_.nic(kDefault).gid_index++;
  time_.run_for(milliseconds(1000));
  EXPECT_EQ(told(), Told{"0 changed, gone: 1"});
}

TEST_F(NicWatchTest, OnlyTheDevicesOwnTableIsReadAgain) {
  world_.nic(kDefault).gid_index++;
  nics_.address_changed(kIfindex + 1);
  time_.run_for(milliseconds(2000));
  EXPECT_TRUE(told().empty());
}

// It may get its first address on any device.
TEST_F(NicWatchTest, ATableWithoutAddressesIsReadWheneverAnyAddressComes) {
  const wire::Gid gid = std::exchange(world_.nic(kBackup).gid, {});
  nics_.gids_changed(context_, kBackup);
  (void)told();
  world_.nic(kBackup).gid = gid;
  nics_.address_changed(kIfindex + 1);
  EXPECT_EQ(told(), Told{"1 changed, gone: 0"});
}

TEST_F(NicWatchTest, AForgottenContextIsNotReadAgain) {
  nics_.address_changed(kIfindex);
  nics_.context_forget(context_);
  world_.nic(kDefault).gid_index++;
  time_.run_for(milliseconds(2000));
  EXPECT_TRUE(told().empty());
}

TEST_F(NicWatchTest, EachMemberIsReachedByOneAddress) {
  group::Group* group = world_.make_group(world_.make_cq());
  const auto addresses = nics_.addresses_of(*group);
  ASSERT_EQ(addresses.size(), 2u);
  EXPECT_EQ(addresses[kDefault], world_.nic(kDefault).gid);
  EXPECT_EQ(addresses[kBackup], world_.nic(kBackup).gid);
}

TEST_F(NicWatchTest, AMemberIsReachedInTheSubnetOfTheApplicationsAddress) {
  group::Group* group = world_.make_group(world_.make_cq());
  auto& backup = world_.nic(kBackup);
  backup.decoys = {{address(7, 2), 4, 0}, {address(0, 2), 5, 0}};  // the default's is 127.1.0.1
  nics_.gids_changed(context_, kBackup);
  EXPECT_EQ(nics_.addresses_of(*group)[kBackup], address(0, 2));
  EXPECT_EQ(nics_.address_of_member(*group, kBackup), address(0, 2));
  // The mask of the application's own says what its subnet is; those of the others are not known.
  EXPECT_EQ(nics_.address_of_member(*group, kBackup, address(7, 9)), address(0, 2));
}

TEST_F(NicWatchTest, AMemberIsReachedInTheVlanOfTheApplicationsAddress) {
  vlans_ = {{kIfindex, 100}, {kIfindex + 1, 200}, {kIfindex + 2, 100}};
  group::Group* group = world_.make_group(world_.make_cq());
  auto& backup = world_.nic(kBackup);
  backup.decoys = {{address(7, 2), 4, kIfindex + 1}, {address(8, 2), 5, kIfindex + 2}};
  nics_.gids_changed(context_, kBackup);
  EXPECT_EQ(nics_.address_of_member(*group, kBackup), address(8, 2));
  EXPECT_EQ(nics_.address_of_member(*group, kBackup, address(7, 9)), address(7, 2))
      << "the other end has chosen";
  EXPECT_EQ(nics_.address_of_member(*group, kDefault, address(7, 9)), world_.nic(kDefault).gid);
}

TEST_F(NicWatchTest, AGidWithoutAnAddressIsReachedByItsDevices) {
  auto& nic = world_.nic(kDefault);
  nic.link_local = nic.gid;
  nic.link_local.raw[0] = 0xfe;
  nic.link_local.raw[1] = 0x80;
  nic.link_local.raw[10] = 0;
  nics_.gids_changed(context_, kDefault);
  EXPECT_EQ(nics_.address_of(context_, nic.link_local), nic.gid);
  EXPECT_EQ(nics_.address_of(context_, nic.gid), nic.gid);
  wire::Gid strange = nic.link_local;
  strange.raw[15] ^= 1;
  EXPECT_EQ(nics_.address_of(context_, strange), wire::Gid{});
}

// A NIC that does not answer commands gets no new path.
TEST_F(NicWatchTest, ANicThatIsLateIsOfNoUse) {
  group::FakeCommands commands(loop_);
  group::command_threads = &commands;
  context_->members[kBackup].nic = 1;
  EXPECT_FALSE(nics_.commands_look()) << "nothing is to be done";
  commands.late.insert(1);
  EXPECT_TRUE(nics_.commands_look());
  EXPECT_EQ(nics_.up(context_), 0b01);
  nics_.port_down(context_, kBackup);
  nics_.port_up(context_, kBackup);
  EXPECT_EQ(nics_.up(context_), 0b01) << "its port says nothing of that";
  commands.answer(1);
  EXPECT_FALSE(nics_.commands_look());
  EXPECT_EQ(nics_.up(context_), 0b11);
  EXPECT_EQ(told(), (Told{"1 late", "1 lost: port down", "1 back"}));
}

}  // namespace
}  // namespace shift::control
