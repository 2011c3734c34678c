// The addresses that members' QPs are connected with, and the regions that they have.
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>
#include <utility>

#include "group/member_qp.h"
#include "group/port.h"
#include "group/test/fake.h"
#include "group/test/fake_commands.h"
#include "group/twins.h"

namespace shift::group {
namespace {

class Address : public ::testing::Test {
 protected:
  static uint32_t psn_of_next(Group* group, int member) {
    wire::QpAddress own;
    EXPECT_EQ(member_qp_address(*group, member, {}, &own), 0);
    return own.psn;
  }
  static Group* group_of(World& world, uint64_t seed) {
    world.context.psn_draws = seed;
    CompletionQueue* cq = world.make_cq();
    return world.make_group(cq);
  }

  World world_;
};

// C8: packets of the last connection, or of the one before, are outside the half of the numbers
// that a new connection takes for its own.
TEST_F(Address, StartPsnsAreFarFromThoseOfTheLastConnections) {
  Group* group = group_of(world_, 1);
  World::fake(group, kDefault).attr.sq_psn = 0x800000;
  uint32_t last = 0x800000;
  for (int i = 0; i < 1000; i++) {
    const uint32_t psn = psn_of_next(group, kDefault);
    const uint32_t ahead = (psn - last) & 0xffffff;
    EXPECT_LT(psn, 1u << 24);
    EXPECT_GE(ahead, 1u << 22);
    EXPECT_LT(ahead, (1u << 22) + (1u << 20));
    last = psn;
  }
}

// C8: what counts is where the connection has got to, also after the QP was stopped.
TEST_F(Address, StartPsnsAreFarFromWhatTheLastConnectionSent) {
  constexpr uint32_t kReached = 0x654321;
  for (const bool stopped : {false, true}) {
    World world{1, 2};
    Group* group = world.make_group(world.make_cq());
    FakeQp& fake = World::fake(group, kBackup);
    group->life.members[kBackup].can_send = true;
    fake.attr.sq_psn = kReached;
    if (stopped) {
      ASSERT_EQ(member_qp_stop(*group, kBackup), 0);
      fake.attr.sq_psn = 0;
    }
    wire::QpAddress own;
    ASSERT_EQ(member_qp_address(*group, kBackup, {}, &own), 0);
    const uint32_t ahead = (own.psn - kReached) & 0xffffff;
    EXPECT_GE(ahead, 1u << 22);
    EXPECT_LT(ahead, (1u << 22) + (1u << 20));
  }
}

TEST_F(Address, StartPsnsFollowFromTheContextsSeed) {
  std::set<uint32_t> first;
  for (uint64_t seed = 0; seed < 64; seed++) {
    World world, again;
    Group* group = group_of(world, seed);
    Group* same = group_of(again, seed);
    const uint32_t psn = psn_of_next(group, kBackup);
    EXPECT_EQ(psn, psn_of_next(same, kBackup));
    EXPECT_EQ(psn_of_next(group, kThird), psn_of_next(same, kThird));
    first.insert(psn);
  }
  EXPECT_GT(first.size(), 60u) << "different seeds, different numbers";
}

// A group that the application has connected between link-local GIDs, at index 0.
class LinkLocal : public ::testing::Test {
 protected:
  LinkLocal() {
    world_.nic(kDefault).link_local = link_local(1);
    group_->life.ends.local.gid = link_local(1);
    group_->life.ends.remote.gid = link_local(2);
    group_->life.ends.gid_type = IBV_GID_TYPE_ROCE_V1;
    group_->life.asked.attr.path_mtu = IBV_MTU_4096;
    group_->life.asked.attr.ah_attr.grh.sgid_index = 0;
    group_->life.asked.attr.ah_attr.grh.hop_limit = 1;
    group_->life.asked.attr.ah_attr.grh.traffic_class = 106;
  }
  static wire::Gid link_local(uint8_t n) {
    wire::Gid gid;
    gid.raw[0] = 0xfe;
    gid.raw[1] = 0x80;
    gid.raw[15] = n;
    return gid;
  }
  const ibv_qp_attr& connect(int member, const wire::Gid& own, const wire::Gid& peer) {
    wire::QpAddress here, there{peer, 0x77, 1, IBV_MTU_1024};
    EXPECT_EQ(member_qp_address(*group_, member, own, &here), 0);
    EXPECT_EQ(member_qp_connect(*group_, member, here, there), 0);
    return World::fake(group_, member).attr;
  }

  World world_;
  Group* group_ = world_.make_group(world_.make_cq());
};

TEST_F(LinkLocal, OwnPathIsMadeAgainAsTheApplicationMadeIt) {
  const ibv_qp_attr& attr = connect(kDefault, link_local(1), link_local(2));
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  EXPECT_EQ(attr.ah_attr.grh.sgid_index, 0) << "RoCE v1, like the peer's end";
  EXPECT_EQ(attr.ah_attr.grh.hop_limit, 1);
  EXPECT_EQ(wire::Gid::from_verbs(attr.ah_attr.grh.dgid), link_local(2));
  EXPECT_EQ(attr.ah_attr.grh.traffic_class, 106);
}

TEST_F(LinkLocal, OwnPathOfRoceV2StaysSo) {
  group_->life.ends.gid_type = IBV_GID_TYPE_ROCE_V2;
  group_->life.asked.attr.ah_attr.grh.sgid_index = 1;
  EXPECT_EQ(connect(kDefault, link_local(1), link_local(2)).ah_attr.grh.sgid_index, 1);
}

TEST_F(LinkLocal, OtherPathsAreOfIpv4Addresses) {
  const wire::Gid peer = wire::Gid::from_ipv4(0x04030201);
  for (int member : {kDefault, kBackup}) {
    const ibv_qp_attr& attr = connect(member, world_.nic(member).gid, peer);
    EXPECT_EQ(attr.ah_attr.grh.sgid_index, world_.nic(member).gid_index);
    EXPECT_EQ(attr.ah_attr.grh.hop_limit, 64) << "they may be routed";
    EXPECT_EQ(attr.ah_attr.grh.traffic_class, 106);
    EXPECT_EQ(attr.path_mtu, IBV_MTU_1024) << "the smaller of both ends'";
  }
}

// Between IPv4 addresses the application knows how many hops there are.
TEST_F(LinkLocal, HopLimitBetweenAddressesIsTheApplications) {
  group_->life.ends.local.gid = world_.nic(kDefault).gid;
  const ibv_qp_attr& attr =
      connect(kBackup, world_.nic(kBackup).gid, wire::Gid::from_ipv4(0x04030201));
  EXPECT_EQ(attr.ah_attr.grh.hop_limit, 1);
}

TEST_F(LinkLocal, NamesBelongToAddressesOfTheirDevice) {
  const auto names = port_names(world_.nic(kDefault).context(), 1);
  ASSERT_EQ(names.size(), 1u) << "once, though it is there for both versions of RoCE";
  EXPECT_EQ(names[0].gid, link_local(1));
  EXPECT_EQ(names[0].address, world_.nic(kDefault).gid);
  EXPECT_TRUE(port_names(world_.nic(kBackup).context(), 1).empty());
  EXPECT_EQ(port_addresses(world_.nic(kDefault).context(), 1).size(), 1u);
}

TEST_F(LinkLocal, TypeIsThatOfThePlace) {
  ibv_context* nic = world_.nic(kDefault).context();
  ASSERT_TRUE(gid_at(nic, 1, 0) && gid_at(nic, 1, 1));
  EXPECT_EQ(gid_at(nic, 1, 0)->gid_type, uint32_t{IBV_GID_TYPE_ROCE_V1});
  EXPECT_EQ(gid_at(nic, 1, 1)->gid_type, uint32_t{IBV_GID_TYPE_ROCE_V2});
  EXPECT_FALSE(gid_at(nic, 1, 100));
  // The GID is found by value and type, wherever `likely` points.
  EXPECT_EQ(gid_index_of(nic, 1, link_local(1), IBV_GID_TYPE_ROCE_V1, 3), 0);
  EXPECT_EQ(gid_index_of(nic, 1, link_local(1), IBV_GID_TYPE_ROCE_V2, 0), 1);
  EXPECT_EQ(gid_index_of(nic, 1, world_.nic(kDefault).gid, IBV_GID_TYPE_ROCE_V1, 3), -1);
}

TEST_F(LinkLocal, AGidIsFoundWhereItIsTheOnlyOne) {
  EXPECT_EQ(gid_index_of(world_.context.members[kBackup].real, 1, world_.nic(kBackup).gid,
                         IBV_GID_TYPE_ROCE_V2, 0),
            static_cast<int>(world_.nic(kBackup).gid_index));
}

TEST(MemberQp, IsMadeOnlyWhereItsPartsAre) {
  World world;
  CompletionQueue *sends = world.make_cq(), *receives = world.make_cq();
  World::Options options;
  options.twins = false;
  Group* group = world.make_group(sends, receives, options);
  ASSERT_EQ(group->real[kBackup], nullptr);
  EXPECT_EQ(start_sending(*group, kBackup), 0) << "there is nothing to start";
  for (CompletionQueue* missing : {sends, receives}) {
    ibv_cq* kept = missing->real[kBackup];
    missing->real[kBackup] = nullptr;
    EXPECT_EQ(member_qp_create(*group, kBackup), ENODEV);
    missing->real[kBackup] = kept;
  }
  ibv_pd* kept = std::exchange(world.pd.real[kBackup], nullptr);
  EXPECT_EQ(member_qp_create(*group, kBackup), ENODEV);
  world.pd.real[kBackup] = kept;
  EXPECT_EQ(member_qp_create(*group, kBackup), 0);
  EXPECT_NE(group->real[kBackup], nullptr);
}

// What the further members' NICs were asked to register.
struct Registered {
  ibv_pd* pd;
  uint64_t offset, length, iova;
  int fd;
  unsigned access;
  bool is_null;
};
std::vector<Registered> registered;
ibv_mr* answer = nullptr;

class Twins : public ::testing::Test {
 protected:
  void SetUp() override {
    registered.clear();
    answer = &mr_;
    table_ = *fake_stock();
    table_.reg_mr_iova2 = [](ibv_pd* pd, void*, size_t length, uint64_t iova, unsigned access) {
      registered.push_back({pd, 0, length, iova, -1, access, false});
      return answer;
    };
    table_.reg_dmabuf_mr = [](ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                              int access) {
      registered.push_back({pd, offset, length, iova, fd, static_cast<unsigned>(access), false});
      return answer;
    };
    before_ = std::exchange(stock, &table_);
    command_threads = &commands_;
    region_.mr.context = world_.context.handle();
    region_.mr.pd = &world_.pd.pd;
    region_.mr.length = 100;
    region_.iova = 0x5000;
    region_.access = IBV_ACCESS_RELAXED_ORDERING | IBV_ACCESS_LOCAL_WRITE;
  }
  void TearDown() override { stock = before_; }
  bool is_ready(int member) { return region_.members[member].twin == MemoryRegion::Twin::kReady; }
  void register_twins() {
    twin_regions_register(held_, world_.pd);
    tasks_.run();
  }

  World world_;
  StockVerbs table_;
  const StockVerbs* before_ = nullptr;
  ibv_mr mr_{};
  std::shared_ptr<MemoryRegion> held_ = std::make_shared<MemoryRegion>();
  MemoryRegion& region_ = *held_;
  LazyTasks tasks_;
  FakeCommands commands_{tasks_};
};

TEST_F(Twins, AreRegisteredWithAllThatTheApplicationAskedFor) {
  register_twins();
  ASSERT_EQ(registered.size(), 2u);
  for (int member : {kBackup, kThird}) {
    const Registered& one = registered[static_cast<size_t>(member) - 1];
    EXPECT_EQ(one.pd, world_.pd.real[member]);
    EXPECT_EQ(one.length, 100u);
    EXPECT_EQ(one.iova, 0x5000u);
    EXPECT_EQ(one.access, region_.access);
    EXPECT_TRUE(is_ready(member));
  }
}

TEST_F(Twins, AreMadeOfTheSameBuffer) {
  region_.kind = MemoryRegion::Kind::kDmabuf;
  region_.fd = UniqueFd(dup(2));
  region_.offset = 4096;
  register_twins();
  ASSERT_EQ(registered.size(), 2u);
  EXPECT_EQ(registered[0].fd, region_.fd.get());
  EXPECT_EQ(registered[0].offset, 4096u);
  EXPECT_EQ(registered[0].iova, 0x5000u);
  EXPECT_TRUE(is_ready(kBackup));
}

TEST_F(Twins, OfANullRegionAreNullRegions) {
  region_.kind = MemoryRegion::Kind::kNull;
  world_.nic(kBackup).verbs.alloc_null_mr = [](ibv_pd* pd) {
    registered.push_back({pd, 0, 0, 0, -1, 0, true});
    return answer;
  };
  register_twins();
  ASSERT_EQ(registered.size(), 1u);
  EXPECT_TRUE(registered[0].is_null);
  EXPECT_TRUE(is_ready(kBackup));
  EXPECT_FALSE(is_ready(kThird)) << "its NIC has none";
}

TEST_F(Twins, OfARegionThatIsGoneAreNotMade) {
  twin_regions_register(held_, world_.pd);
  twin_regions_deregister(held_);
  tasks_.run();
  EXPECT_TRUE(registered.empty());
}

// The application deregisters the region while its twin is being registered.
TEST_F(Twins, OfARegionThatGoesMeanwhileGoToo) {
  static std::shared_ptr<MemoryRegion>* region;
  static int ended;
  region = &held_;
  ended = 0;
  table_.reg_mr_iova2 = [](ibv_pd* pd, void*, size_t, uint64_t, unsigned) {
    registered.push_back({pd, 0, 0, 0, -1, 0, false});
    if (!(*region)->deregistered) twin_regions_deregister(*region);
    return answer;
  };
  table_.dereg_mr = [](ibv_mr*) { return ended++, 0; };
  register_twins();
  EXPECT_EQ(registered.size(), 1u);
  EXPECT_EQ(ended, 1);
  EXPECT_FALSE(is_ready(kBackup));
}

// What was asked for before a change of the region is not done any more.
TEST_F(Twins, OfARegionThatIsChangedAreMadeOnce) {
  twin_regions_register(held_, world_.pd);
  twin_regions_end(held_);
  region_.mr.length = 200;
  register_twins();
  ASSERT_EQ(registered.size(), 2u);
  EXPECT_EQ(registered[0].length, 200u);
  EXPECT_TRUE(is_ready(kBackup));
}

// The memory may be freed when ibv_dereg_mr returns, so it waits where the region may be in use.
TEST_F(Twins, OfARegionInUseAreWaitedFor) {
  static int ended;
  ended = 0;
  table_.dereg_mr = [](ibv_mr*) { return ended++, 0; };
  register_twins();
  world_.context.members[kThird].has_carried = true;
  twin_regions_deregister(held_);
  EXPECT_EQ(ended, 2) << "one task follows the other here";
  tasks_.run();
  EXPECT_EQ(ended, 2);
}

// C6: nobody waits for a NIC whose commands hang; it does its part later.
TEST_F(Twins, OnANicThatIsLateAreNotWaitedFor) {
  static int ended;
  ended = 0;
  table_.dereg_mr = [](ibv_mr*) { return ended++, 0; };
  register_twins();
  world_.context.members[kBackup].has_carried = true;
  commands_.late.insert(0);
  twin_regions_deregister(held_);
  EXPECT_EQ(ended, 0);
  commands_.answer(0);
  EXPECT_EQ(ended, 2);
}

TEST_F(Twins, OfDeviceMemoryThereAreNone) {
  region_.kind = MemoryRegion::Kind::kOnDefault;
  register_twins();
  EXPECT_TRUE(registered.empty());
  for (int member : {kBackup, kThird}) {
    EXPECT_EQ(region_.members[member].twin, MemoryRegion::Twin::kFailed);
  }
}

// A program that sleeps until a completion raises an event would sleep for ever.
TEST(TwinQueue, IsNotMadeWithoutItsChannel) {
  World world;
  LazyTasks tasks;
  FakeCommands commands{tasks};
  command_threads = &commands;
  CompletionQueue cq;
  cq.context = &world.context;
  cq.real[kDefault] = &world.nic(kDefault).cq_make(64).cq;
  CompletionChannel channel{};
  ibv_comp_channel real{};
  channel.real[kDefault] = channel.real[kThird] = &real;
  cq.channel = &channel;
  twin_cqs_create(cq);
  tasks.run();
  EXPECT_TRUE(cq.real[kBackup] == nullptr);
  EXPECT_FALSE(cq.real[kThird] == nullptr);
  cq.channel = nullptr;  // no program waits for events
  twin_cqs_create(cq);
  tasks.run();
  EXPECT_FALSE(cq.real[kBackup] == nullptr);
}

}  // namespace
}  // namespace shift::group
