#include "control/address_choice.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace shift::control {
namespace {

uint32_t ip(const char* text) {
  in_addr address{};
  EXPECT_EQ(inet_pton(AF_INET, text, &address), 1) << text;
  return address.s_addr;
}

// A prefix length below 0 is not known, and neither is such a VLAN.
HostAddress at(const char* text, int prefix, int vlan = 0) {
  HostAddress made{.ip_be = ip(text)};
  if (prefix >= 0) made.mask_be = htonl(prefix == 0 ? 0 : ~0u << (32 - prefix));
  if (vlan >= 0) made.vlan = static_cast<uint16_t>(vlan);
  return made;
}

struct Case {
  const char* what;
  HostAddress application;
  std::vector<HostAddress> addresses;
  const char* peer;
  size_t chosen;
};

TEST(AddressChoice, FollowsTheNetworkThatTheApplicationChose) {
  const Case cases[] = {
      {"one", at("10.1.0.5", 24), {at("10.9.0.5", 24)}, nullptr, 0},
      {"its subnet", at("10.1.0.5", 24), {at("10.9.0.6", 24), at("10.1.0.6", 24)}, nullptr, 1},
      {"its VLAN on a rail with a subnet of its own",
       at("10.1.0.5", 24, 100),
       {at("10.12.0.6", 24, 0), at("10.22.0.6", 24, 200), at("10.2.0.6", 24, 100)},
       nullptr,
       2},
      {"no VLAN is one, too",
       at("10.1.0.5", 24, 0),
       {at("10.12.0.6", 24, 100), at("10.2.0.6", 24, 0)},
       nullptr,
       1},
      {"its subnet before its VLAN",
       at("10.1.0.5", 24, 100),
       {at("10.2.0.6", 24, 100), at("10.1.0.6", 24, 200)},
       nullptr,
       1},
      {"both before its subnet",
       at("10.1.0.5", 24, 100),
       {at("10.1.0.7", 24, 200), at("10.1.0.6", 24, 100)},
       nullptr,
       1},
      {"the first of equal ones",
       at("10.1.0.5", 24),
       {at("10.9.0.6", 24), at("10.1.0.7", 24), at("10.1.0.6", 24)},
       nullptr,
       1},
      {"the first where nothing fits",
       at("10.1.0.5", 24, 100),
       {at("10.8.0.6", 24, 1), at("10.9.0.6", 24, 2)},
       nullptr,
       0},
      {"the first where nothing is known",
       at("10.1.0.5", -1, -1),
       {at("10.8.0.6", -1, -1), at("10.1.0.6", -1, -1)},
       nullptr,
       0},
      {"where the peer's address lies",
       at("10.1.0.5", 24, 100),
       {at("10.1.0.6", 24, 100), at("10.2.0.6", 24, 200)},
       "10.2.0.9",
       1},
      {"a pair of addresses on a cable",
       at("10.1.0.0", 31),
       {at("10.1.0.2", 31), at("10.1.0.4", 31)},
       "10.1.0.5",
       1},
      {"a peer that lies nowhere",
       at("10.1.0.5", 24),
       {at("10.9.0.6", 24), at("10.1.0.6", 24)},
       "10.77.0.9",
       1},
  };
  for (const Case& one : cases) {
    std::optional<uint32_t> peer;
    if (one.peer != nullptr) peer = ip(one.peer);
    EXPECT_EQ(address_choose(one.addresses, one.application, peer), one.chosen) << one.what;
  }
}

}  // namespace
}  // namespace shift::control
