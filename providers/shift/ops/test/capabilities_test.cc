// The capabilities of a group: the weakest member decides on what protected objects need.
#include "ops/capabilities.h"

#include <gtest/gtest.h>

#include <cstring>

namespace shift::ops {
namespace {

ibv_device_attr_ex strong() {
  ibv_device_attr_ex attr{};
  attr.orig_attr.max_qp = 100;
  attr.orig_attr.max_cqe = 1000;
  attr.orig_attr.max_mw = 50;
  attr.orig_attr.page_size_cap = 0xff000;
  attr.orig_attr.atomic_cap = IBV_ATOMIC_GLOB;
  attr.orig_attr.local_ca_ack_delay = 4;
  attr.orig_attr.device_cap_flags =
      IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_RC_IP_CSUM;
  attr.device_cap_flags_ex = attr.orig_attr.device_cap_flags;
  attr.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  attr.odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_READ;
  attr.odp_caps.per_transport_caps.ud_odp_caps = IBV_ODP_SUPPORT_SEND;
  attr.max_dm_size = 4096;
  return attr;
}

TEST(Capabilities, LikeMembersLoseNothing) {
  ibv_device_attr_ex attr = strong();
  limit_to(attr, strong());
  const ibv_device_attr_ex whole = strong();
  EXPECT_EQ(memcmp(&attr, &whole, sizeof attr), 0);
}

TEST(Capabilities, TheWeakerMemberDecidesWhateverItsPlace) {
  ibv_device_attr_ex weak = strong();
  weak.orig_attr.max_qp = 10;
  weak.orig_attr.max_cqe = 100;
  weak.orig_attr.page_size_cap = 0xf1000;
  weak.orig_attr.atomic_cap = IBV_ATOMIC_NONE;
  weak.orig_attr.local_ca_ack_delay = 9;
  weak.odp_caps.general_caps = 0;
  weak.odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND;
  for (bool is_first : {false, true}) {
    ibv_device_attr_ex attr = is_first ? weak : strong();
    limit_to(attr, is_first ? strong() : weak);
    EXPECT_EQ(attr.orig_attr.max_qp, 10);
    EXPECT_EQ(attr.orig_attr.max_cqe, 100);
    EXPECT_EQ(attr.orig_attr.page_size_cap, 0xf1000u);
    EXPECT_EQ(attr.orig_attr.atomic_cap, IBV_ATOMIC_NONE);
    EXPECT_EQ(attr.orig_attr.local_ca_ack_delay, 9);
    EXPECT_EQ(attr.odp_caps.general_caps, 0u);
    EXPECT_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps, uint32_t{IBV_ODP_SUPPORT_SEND});
  }
}

// C10: an unprotected object works as on the default NIC, where it stays.
TEST(Capabilities, WhatIsNotProtectedIsTheDefaults) {
  ibv_device_attr_ex attr = strong();
  limit_to(attr, ibv_device_attr_ex{});
  EXPECT_EQ(attr.orig_attr.device_cap_flags,
            unsigned{IBV_DEVICE_XRC} | unsigned{IBV_DEVICE_MEM_WINDOW_TYPE_2B});
  EXPECT_EQ(attr.device_cap_flags_ex, uint64_t{attr.orig_attr.device_cap_flags});
  EXPECT_EQ(attr.odp_caps.per_transport_caps.ud_odp_caps, uint32_t{IBV_ODP_SUPPORT_SEND});
  EXPECT_EQ(attr.orig_attr.max_mw, 50);
  EXPECT_EQ(attr.max_dm_size, 4096u);
}

TEST(Capabilities, WhatTheLayerRefusesNobodyCan) {
  ibv_device_attr_ex attr = strong();
  attr.orig_attr.device_cap_flags |= IBV_DEVICE_SRQ_RESIZE;
  attr.device_cap_flags_ex |= IBV_DEVICE_SRQ_RESIZE;
  const ibv_device_attr_ex all = attr;
  limit_to(attr, all);
  EXPECT_EQ(attr.orig_attr.device_cap_flags, strong().orig_attr.device_cap_flags);
  EXPECT_EQ(attr.device_cap_flags_ex, strong().device_cap_flags_ex);
}

TEST(Capabilities, APortsMessagesFitEveryMember) {
  ibv_port_attr port{}, other{};
  port.max_msg_sz = 1 << 30;
  port.max_mtu = port.active_mtu = IBV_MTU_4096;
  port.lid = 7;
  other.max_msg_sz = 1 << 20;
  other.max_mtu = IBV_MTU_4096;
  other.active_mtu = IBV_MTU_1024;
  limit_to(port, other);
  EXPECT_EQ(port.max_msg_sz, 1u << 20);
  EXPECT_EQ(port.max_mtu, IBV_MTU_4096);
  EXPECT_EQ(port.active_mtu, IBV_MTU_1024);
  EXPECT_EQ(port.lid, 7);
}

}  // namespace
}  // namespace shift::ops
