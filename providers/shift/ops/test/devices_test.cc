// Which NICs a device of the list stands for, and what an open device says of itself.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "ops/glue.h"
#include "ops/test/opened.h"

namespace shift::ops {
namespace {

// ---- the list

class DeviceList : public ::testing::Test {
 protected:
  DeviceList() {
    table_.free_device_list = [](ibv_device** real) { freed = real; };
    before_ = std::exchange(stock, &table_);
  }
  ~DeviceList() override { stock = before_; }
  ibv_device* add(const char* name, ibv_node_type type = IBV_NODE_CA) {
    ibv_device& device = devices_.emplace_back();
    std::strcpy(device.name, name);
    device.node_type = type;
    real_.push_back(&device);
    return &device;
  }
  std::vector<ibv_device*> shown() {
    freed = nullptr;
    ibv_device** list = device_list_wrap(real_.data(), static_cast<int>(real_.size()));
    std::vector<ibv_device*> all;
    for (ibv_device** one = list; *one != nullptr; one++) all.push_back(*one);
    device_list_free(list);
    EXPECT_EQ(freed, real_.data());
    return all;
  }

  static inline ibv_device** freed;
  std::deque<ibv_device> devices_;
  std::vector<ibv_device*> real_;
  StockVerbs table_;
  const StockVerbs* before_ = nullptr;
};

TEST_F(DeviceList, NeighboursOfAKindAreAGroup) {
  add("left_0");
  add("right_0");
  add("left_1");
  add("left_2");
  add("right_1");
  add("left_3");
  const auto list = shown();
  ASSERT_EQ(list.size(), 6u);
  const int partners[] = {2, 4, 0, 5, 1, 3};
  for (int i = 0; i < 6; i++) {
    ASSERT_TRUE(owns(list[i])) << i;
    const auto& device = *reinterpret_cast<group::Device*>(list[i]);
    EXPECT_STREQ(list[i]->name, real_[i]->name);
    ASSERT_EQ(device.member_count, 2) << i;
    EXPECT_EQ(device.real[0], real_[i]) << i;
    EXPECT_EQ(device.real[1], real_[partners[i]]) << i;
    EXPECT_EQ(real_device(list[i]), real_[i]);
  }
}

TEST_F(DeviceList, WhoHasNoNeighbourIsTheNicItself) {
  add("odd_0");
  add("odd_1");
  add("odd_2");
  ibv_device* other = add("single_0");
  const auto list = shown();
  ASSERT_EQ(list.size(), 4u);
  EXPECT_TRUE(owns(list[0]) && owns(list[1]) && owns(list[2]));
  EXPECT_EQ(reinterpret_cast<group::Device*>(list[2])->real[1], real_[0]) << "backs two";
  EXPECT_EQ(list[3], other);
  EXPECT_FALSE(owns(other));
}

TEST_F(DeviceList, ASwitchIsNoNeighbourOfANic) {
  ibv_device* nic = add("mixed_0");
  ibv_device* other = add("mixed_1", IBV_NODE_SWITCH);
  EXPECT_EQ(shown(), (std::vector{nic, other}));
}

TEST_F(DeviceList, IsTheSameTheNextTime) {
  add("again_0");
  add("again_1");
  const auto first = shown();
  EXPECT_EQ(shown(), first);
  // Without the second NIC the first one has no partner.
  real_.pop_back();
  EXPECT_EQ(shown(), (std::vector{real_[0]}));
}

TEST_F(DeviceList, MayBeEmpty) {
  EXPECT_TRUE(shown().empty());
}

// ---- open devices

class OpenDevices : public Opened {
 protected:
  void SetUp() override {}
  ibv_port_attr port() {
    ibv_port_attr attr{};
    EXPECT_EQ(query_port(context_, 1, &attr, sizeof attr), 0);
    return attr;
  }
};

TEST_F(OpenDevices, AreOpenOnEachNicAndClosedOnAll) {
  open();
  EXPECT_EQ(count("context"), 2u);
  EXPECT_EQ(count("channel"), 2u);
  EXPECT_EQ(context_->device, shown_[0]);
  EXPECT_EQ(context_above(first_.context()), context_);
  EXPECT_EQ(context_above(second_.context()), nullptr);
  EXPECT_EQ(real_context(context_), first_.context());
  close();
  EXPECT_EQ(count("context"), 0u);
  EXPECT_EQ(count("channel"), 0u);
  EXPECT_EQ(context_above(first_.context()), nullptr);
}

TEST_F(OpenDevices, WithoutTheirFurtherNicsAreTheNicItself) {
  refusals["made_1"] = EIO;
  EXPECT_EQ(open_device(shown_[0]), first_.context());
  EXPECT_EQ(count("channel"), 0u);
  live.clear();
  refusals = {{"made_0", ENODEV}};
  EXPECT_EQ(open_device(shown_[0]), nullptr);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(count("context"), 0u);
}

// A NIC that dies while it is opened says nothing of itself.
TEST_F(OpenDevices, OfADyingNicAreDescribedAsTheNextOne) {
  refusals["query_device"] = EIO;
  second_.verbs.query_device_ex = [](ibv_context*, const ibv_query_device_ex_input*,
                                     ibv_device_attr_ex* attr, size_t) {
    attr->orig_attr.max_cqe = 700;
    attr->hca_core_clock = 1000;
    return 0;
  };
  open();
  EXPECT_EQ(count("context"), 2u);
  EXPECT_EQ(context().device_attr.orig_attr.max_cqe, 700);
  EXPECT_EQ(context().device_attr.hca_core_clock, 1000u);
  EXPECT_EQ(context().common_attr.orig_attr.max_cqe, 700);
  EXPECT_TRUE(context().members[kDefault].port_down);
  close();
  EXPECT_EQ(count("context"), 0u);
  EXPECT_EQ(count("channel"), 0u);
}

TEST_F(OpenDevices, AreNotBackedByADyingNic) {
  second_.verbs.query_device_ex = [](ibv_context*, const ibv_query_device_ex_input*,
                                     ibv_device_attr_ex*, size_t) { return EIO; };
  table_.query_device = [](ibv_context*, ibv_device_attr*) { return EIO; };
  EXPECT_EQ(open_device(shown_[0]), first_.context());
  EXPECT_EQ(count("channel"), 0u);
  EXPECT_EQ(count("context"), 1u);
  live.clear();
}

TEST_F(OpenDevices, WithoutBackgroundThreadsAreNotOpened) {
  in_use = nullptr;
  EXPECT_EQ(open_device(shown_[0]), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(count("context"), 0u);
  in_use = &runtime_;
}

// A message must fit through each NIC over which it may have to go.
TEST_F(OpenDevices, ShowWhatAllPortsCanDo) {
  second_.verbs.query_port = [](ibv_context*, uint8_t, ibv_port_attr* attr, size_t) {
    attr->state = IBV_PORT_ACTIVE;
    attr->max_msg_sz = 60;
    return 0;
  };
  open();
  EXPECT_EQ(port().max_msg_sz, 60u);
  close();
  // What a port that is down says of its message size means nothing.
  second_.verbs.query_port = [](ibv_context*, uint8_t, ibv_port_attr* attr, size_t) {
    attr->state = IBV_PORT_DOWN;
    attr->max_msg_sz = 1;
    return 0;
  };
  open();
  EXPECT_EQ(port().max_msg_sz, 100u);
  close();
  // The answer of a port that refuses the query means nothing either.
  second_.verbs.query_port = [](ibv_context*, uint8_t, ibv_port_attr* attr, size_t) {
    attr->state = IBV_PORT_ACTIVE;
    attr->max_msg_sz = 1;
    return EIO;
  };
  open();
  EXPECT_EQ(port().max_msg_sz, 100u);
}

TEST_F(OpenDevices, TellTheirPortsErrorsWhileNoOtherNicStandsIn) {
  open();
  context().members[1].port_down = true;
  refusals["query_port"] = EIO;
  ibv_port_attr attr{};
  EXPECT_EQ(query_port(context_, 1, &attr, sizeof attr), EIO);
}

// C9: the traffic flows on another NIC.
TEST_F(OpenDevices, ShowTheirPortAsItWasWhileAFaultIsMasked) {
  open();
  group::Group away;
  away.life.path.off_default = true;
  context().groups.push_back(&away);
  ibv_port_attr attr{};
  refusals["query_port"] = EIO;
  ASSERT_EQ(query_port(context_, 1, &attr, sizeof attr), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.max_msg_sz, 100u);
  EXPECT_EQ(query_port(context_, 2, &attr, sizeof attr), EIO) << "it had no second port";
  refusals.clear();
  first_.verbs.query_port = [](ibv_context*, uint8_t, ibv_port_attr* down, size_t) {
    down->state = IBV_PORT_DOWN;
    down->phys_state = 2;
    return 0;
  };
  EXPECT_EQ(port().state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port().phys_state, 5);
  context().groups.clear();
  // Another NIC would carry what is sent to it.
  EXPECT_EQ(port().state, IBV_PORT_ACTIVE);
  context().members[1].port_down = true;
  EXPECT_EQ(port().state, IBV_PORT_DOWN);
}

// Has a QP use this address, at this place of port 1's GID table.
void use_address(group::Group& group, uint8_t index, uint32_t ip) {
  group.life.asked.mask = IBV_QP_AV;
  group.life.asked.attr.port_num = 1;
  group.life.asked.attr.ah_attr.grh.sgid_index = index;
  group.life.ends.local.gid = wire::Gid::from_ipv4(ip);
}

// C9: the address is gone from the NIC, but a QP uses it.
TEST_F(OpenDevices, ShowTheAddressThatAQpUses) {
  static constexpr uint32_t kIp = 0x0100007f, kOther = 0x0200007f;
  static ibv_gid now;
  now = wire::Gid::from_ipv4(kOther).to_verbs();
  open();
  table_.query_gid = [](ibv_context*, uint8_t, int, ibv_gid* gid) {
    *gid = now;
    return refusal("query_gid");
  };
  const auto shown = [&](int index) {
    ibv_gid gid{};
    const int error = query_gid(context_, 1, index, &gid);
    return error == 0 ? wire::Gid::from_verbs(gid).ipv4() : std::nullopt;
  };
  group::Group user;
  use_address(user, 3, kIp);
  context().groups.push_back(&user);
  EXPECT_EQ(shown(3), kOther) << "the NIC has an address there";
  now = {};
  EXPECT_EQ(shown(3), kIp);
  EXPECT_EQ(shown(4), std::nullopt) << "no QP uses it";
  refusals["query_gid"] = EIO;
  EXPECT_EQ(shown(3), kIp);
  ibv_gid gid{};
  EXPECT_EQ(query_gid(context_, 1, 4, &gid), EIO);
  context().groups.clear();
}

// A GID that the dead NIC had is shown where it was, unless another NIC has it by now.
TEST_F(OpenDevices, ShowWhatADeadNicHadUnlessItIsAnotherNicsByNow) {
  static constexpr uint32_t kIp = 0x0100007f, kMoved = 0x0200007f;
  static bool has_moved;
  has_moved = false;
  const auto entry = [](uint32_t index, uint32_t ip) {
    return ibv_gid_entry{wire::Gid::from_ipv4(ip).to_verbs(), index, 1, IBV_GID_TYPE_ROCE_V2, 7};
  };
  open();
  context().remembered_gids = {entry(3, kIp), entry(4, kMoved)};
  context().members[kDefault].dead = context().members[kDefault].is_deputy = true;
  table_.query_gid_table = [](ibv_context*, ibv_gid_entry* to, size_t, uint32_t,
                              size_t) -> ssize_t {
    *to = {wire::Gid::from_ipv4(kMoved).to_verbs(), 5, 1, IBV_GID_TYPE_ROCE_V2, 9};
    return has_moved ? 1 : 0;
  };
  const auto shown = [&](uint32_t index) {
    ibv_gid_entry one{};
    const int error = query_gid_ex(context_, 1, index, &one, 0, sizeof one);
    return error == 0 ? wire::Gid::from_verbs(one.gid).ipv4() : std::nullopt;
  };
  EXPECT_EQ(shown(3), kIp);
  EXPECT_EQ(shown(4), kMoved);
  has_moved = true;
  EXPECT_EQ(shown(3), kIp);
  EXPECT_EQ(shown(4), std::nullopt);
  context().members[kDefault].is_deputy = false;
}

// UCX reads the table place by place, and gives up at an error.
TEST_F(OpenDevices, HaveEmptyPlacesInTheTableOfADeadNic) {
  open();
  context().port_attr[1].gid_tbl_len = 8;
  table_.query_gid = [](ibv_context*, uint8_t, int, ibv_gid*) { return EIO; };
  table_.query_gid_ex = [](ibv_context*, uint32_t, uint32_t, ibv_gid_entry*, uint32_t, size_t) {
    return EIO;
  };
  ibv_gid gid;
  std::memset(&gid, 0xff, sizeof gid);
  ibv_gid_entry entry{};
  EXPECT_EQ(query_gid(context_, 1, 7, &gid), EIO) << "it may be healthy in a moment";
  context().members[kDefault].dead = true;
  EXPECT_EQ(query_gid(context_, 1, 7, &gid), 0);
  EXPECT_EQ(wire::Gid::from_verbs(gid), wire::Gid{});
  EXPECT_EQ(query_gid_ex(context_, 1, 7, &entry, 0, sizeof entry), ENODATA);
  EXPECT_EQ(query_gid(context_, 1, 8, &gid), EIO) << "there is no such place";
  EXPECT_EQ(query_gid(context_, 2, 7, &gid), EIO) << "there is no such port";
  EXPECT_EQ(query_gid_ex(context_, 1, 8, &entry, 0, sizeof entry), EIO);
}

// C9: so do the entry and the table, once the program has seen them.
TEST_F(OpenDevices, ShowTheEntryThatAQpUses) {
  static constexpr uint32_t kIp = 0x0100007f, kOther = 0x0200007f;
  static std::vector<ibv_gid_entry> table;
  const auto entry = [](uint32_t index, uint32_t ip) {
    return ibv_gid_entry{wire::Gid::from_ipv4(ip).to_verbs(), index, 1, IBV_GID_TYPE_ROCE_V2, 7};
  };
  table = {entry(3, kIp), entry(4, kOther)};
  open();
  table_.query_gid_ex = [](ibv_context*, uint32_t, uint32_t index, ibv_gid_entry* to, uint32_t,
                           size_t) {
    for (const ibv_gid_entry& one : table) {
      if (one.gid_index == index) *to = one;
    }
    const int error = refusal("query_gid_ex");
    if (error != 0) return error;
    return std::ranges::count(table, index, &ibv_gid_entry::gid_index) != 0 ? 0 : ENODATA;
  };
  table_.query_gid_table = [](ibv_context*, ibv_gid_entry* to, size_t, uint32_t,
                              size_t) -> ssize_t {
    if (const int error = refusal("query_gid_table")) return -error;
    std::ranges::copy(table, to);
    return static_cast<ssize_t>(table.size());
  };
  group::Group user;
  use_address(user, 3, kIp);
  context().groups.push_back(&user);
  ibv_gid_entry one{};
  std::array<ibv_gid_entry, 8> all{};
  const auto ask = [&](uint32_t index) {
    one = {};
    return query_gid_ex(context_, 1, index, &one, 0, sizeof one);
  };
  const auto ask_all = [&](size_t max) {
    all = {};
    return query_gid_table(context_, all.data(), max, 0, sizeof one);
  };
  const std::vector<ibv_gid_entry> before = std::exchange(table, {entry(4, kOther)});
  EXPECT_EQ(ask(3), ENODATA) << "it was never shown";
  EXPECT_EQ(ask_all(8), 1);
  table = before;
  ASSERT_EQ(ask(3), 0);
  ASSERT_EQ(ask_all(8), 2);

  table = {entry(4, kOther)};
  ASSERT_EQ(ask(3), 0);
  EXPECT_EQ(std::memcmp(&one, &before[0], sizeof one), 0);
  ASSERT_EQ(ask_all(8), 2);
  EXPECT_EQ(std::memcmp(&all[1], &before[0], sizeof one), 0);
  EXPECT_EQ(ask_all(1), 1) << "the program has no room for more";
  table = {};
  EXPECT_EQ(ask(4), ENODATA) << "no QP uses it";
  refusals["query_gid_ex"] = refusals["query_gid_table"] = EIO;
  ASSERT_EQ(ask(3), 0);
  EXPECT_EQ(one.ndev_ifindex, 7u);
  ASSERT_EQ(ask_all(8), 1);
  EXPECT_EQ(std::memcmp(&all[0], &before[0], sizeof one), 0);
  for (const int mistake : {EINVAL, EOPNOTSUPP}) {
    refusals["query_gid_ex"] = refusals["query_gid_table"] = mistake;
    EXPECT_EQ(ask(3), mistake) << "the program asks for what is not there";
    EXPECT_EQ(ask_all(8), -mistake);
  }
  refusals["query_gid_ex"] = refusals["query_gid_table"] = EIO;
  user.life.ends.local.gid = wire::Gid::from_ipv4(kOther);
  EXPECT_EQ(ask(3), EIO) << "another address was shown there";
  EXPECT_EQ(ask_all(8), -EIO);
  context().groups.clear();
}

TEST_F(OpenDevices, ShowWhatTheyWereWhenTheirNicIsDead) {
  open();
  refusals["query_device"] = EIO;
  ibv_device_attr attr{};
  EXPECT_EQ(query_device(context_, &attr), EIO);
  ibv_device_attr_ex extended{};
  EXPECT_EQ(verbs_get_ctx_op(context_, query_device_ex)
                ->query_device_ex(context_, nullptr, &extended, sizeof extended),
            EIO);
  context().members[kDefault].dead = true;
  attr = {};
  EXPECT_EQ(query_device(context_, &attr), 0);
  EXPECT_EQ(attr.max_cqe, 1000);
  extended = {};
  extended.raw_packet_caps = 7;
  EXPECT_EQ(verbs_get_ctx_op(context_, query_device_ex)
                ->query_device_ex(context_, nullptr, &extended, sizeof extended),
            0);
  EXPECT_EQ(extended.orig_attr.max_cqe, 1000);
  EXPECT_EQ(extended.raw_packet_caps, 0u);
}

TEST_F(OpenDevices, ReadTheDefaultsClock) {
  open();
  ibv_values_ex values{};
  EXPECT_EQ(ibv_query_rt_values_ex(context_, &values), EOPNOTSUPP);
  first_.verbs.query_rt_values = [](ibv_context*, ibv_values_ex* asked) {
    asked->raw_clock.tv_nsec = 3;
    return 0;
  };
  EXPECT_EQ(ibv_query_rt_values_ex(context_, &values), 0);
  EXPECT_EQ(values.raw_clock.tv_nsec, 3);
}

// ---- objects that the default NIC alone makes

using StockObjects = Opened;

TEST_F(StockObjects, AreMadeOfRealParts) {
  static ibv_wq_init_attr asked;
  ibv_pd* pd = alloc_pd(context_);
  ibv_cq* cq = create_cq(context_, 16, nullptr, nullptr, 0);
  ibv_wq_init_attr init{};
  init.pd = pd;
  init.cq = cq;
  init.max_wr = 5;
  EXPECT_EQ(ibv_create_wq(context_, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  first_.verbs.create_wq = [](ibv_context* real, ibv_wq_init_attr* attr) -> ibv_wq* {
    EXPECT_EQ(real, nics.front()->context());
    asked = *attr;
    attr->max_wr = 8;
    static ibv_wq wq;
    return &wq;
  };
  EXPECT_NE(ibv_create_wq(context_, &init), nullptr);
  EXPECT_EQ(asked.pd, real_pd(pd));
  EXPECT_EQ(asked.cq, real_cq(cq));
  EXPECT_EQ(init.max_wr, 8u);
  EXPECT_EQ(init.pd, pd);
  EXPECT_EQ(real_pd(nullptr), nullptr);
  EXPECT_EQ(real_pd(real_pd(pd)), real_pd(pd));
  EXPECT_EQ(real_cq(nullptr), nullptr);
  EXPECT_EQ(destroy_cq(cq), 0);
  EXPECT_EQ(dealloc_pd(pd), 0);
}

// An older stock library's table of verbs begins later and lacks the newest verbs.
TEST_F(StockObjects, AreNotMadeByVerbsThatTheStockLibraryDoesNotHave) {
  first_.verbs.alloc_td = [](ibv_context*, ibv_td_init_attr*) -> ibv_td* {
    static ibv_td td;
    return &td;
  };
  ibv_td_init_attr init{};
  EXPECT_NE(ibv_alloc_td(context_, &init), nullptr);
  const size_t behind =
      reinterpret_cast<char*>(&first_.verbs + 1) - reinterpret_cast<char*>(&first_.verbs.alloc_td);
  first_.verbs.sz = behind;
  EXPECT_NE(ibv_alloc_td(context_, &init), nullptr) << "it is the first of that table";
  first_.verbs.sz = behind - sizeof(void*);
  EXPECT_EQ(ibv_alloc_td(context_, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  first_.verbs.sz = sizeof first_.verbs;
}

TEST_F(StockObjects, OfTheExtendedCallABasicSharedQueueIsTheLayers) {
  static ibv_srq_init_attr_ex asked;
  first_.verbs.create_srq_ex = [](ibv_context*, ibv_srq_init_attr_ex* attr) -> ibv_srq* {
    asked = *attr;
    static ibv_srq srq;
    return &srq;
  };
  ibv_pd* pd = alloc_pd(context_);
  ibv_srq_init_attr_ex init{};
  init.attr.max_wr = 20;
  init.pd = pd;
  EXPECT_EQ(verbs_get_ctx_op(context_, create_srq_ex)->create_srq_ex(context_, &init), nullptr);
  EXPECT_EQ(errno, EINVAL) << "without a domain";
  init.comp_mask = IBV_SRQ_INIT_ATTR_PD;
  init.pd = nullptr;
  EXPECT_EQ(verbs_get_ctx_op(context_, create_srq_ex)->create_srq_ex(context_, &init), nullptr);
  init.pd = pd;
  for (uint32_t more : {0u, unsigned{IBV_SRQ_INIT_ATTR_TYPE}}) {
    init.comp_mask = IBV_SRQ_INIT_ATTR_PD | more;
    init.srq_type = IBV_SRQT_BASIC;
    ibv_srq* srq = verbs_get_ctx_op(context_, create_srq_ex)->create_srq_ex(context_, &init);
    ASSERT_NE(srq, nullptr);
    EXPECT_EQ(srq->context, context_);
    worker_.run();
    EXPECT_EQ(destroy_srq(srq), 0);
  }
  asked = {};
  init.comp_mask = IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE;
  init.srq_type = IBV_SRQT_XRC;
  EXPECT_NE(verbs_get_ctx_op(context_, create_srq_ex)->create_srq_ex(context_, &init), nullptr);
  EXPECT_EQ(asked.pd, real_pd(pd));
  EXPECT_EQ(dealloc_pd(pd), 0);
}

}  // namespace
}  // namespace shift::ops
