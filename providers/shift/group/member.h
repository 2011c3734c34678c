// The twins of the application's objects on the further members of its device group, and connecting
// any member's QP to the peer. Making and connecting run on the worker thread, so that no verb of
// the application waits for them; the worker's queue is first in, first out. What the application
// destroys it takes down itself, when the worker has nothing left to do for it.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "wire/messages.h"

namespace shift::group {

struct CompletionQueue;
struct Context;
struct Group;
struct MemoryRegion;
struct ProtectionDomain;

void twin_cqs_create(CompletionQueue& cq);
void twin_cqs_destroy(CompletionQueue& cq);
// Of a region that is deregistered meanwhile, those that are not begun are not made.
void twin_regions_register(MemoryRegion& region, ProtectionDomain& pd);
// From here on no registration begins; the region is on no list any more. True: one is under way.
bool twin_regions_stop(MemoryRegion& region);
void twin_regions_deregister(MemoryRegion& region);

// Creates the member's QP unless there is one. Errno on failure.
[[nodiscard]] int member_qp_create(Group& group, int member);
// Where the peer can reach the member's QP, with a start PSN far from its last one (C8).
[[nodiscard]] int member_qp_address(Group& group, int member, const wire::Gid& gid,
                                    wire::QpAddress* own);
// RESET -> INIT -> RTR towards the peer's QP, and on to RTS if the application's QP is there.
[[nodiscard]] int member_qp_connect(Group& group, int member, const wire::QpAddress& own,
                                    const wire::QpAddress& peer);
// RESET, which ends all work on the QP and forgets it, and on to ERR, where it takes nothing. Errno
// if RESET is refused.
[[nodiscard]] int member_qp_stop(Group& group, int member);
// RTR -> RTS for a connected QP, once the application's has got there.
[[nodiscard]] int member_qp_start_sending(Group& group, int member);
// The same; the caller holds modify_mutex.
[[nodiscard]] int start_sending(Group& group, int member);
// ibv_modify_qp by the application, but to RESET, on the member that carries its data: what it
// asked for is remembered for the others. On the application's thread; all else here is the
// worker's.
[[nodiscard]] int application_modify(Group& group, int member, const ibv_qp_attr& attr, int mask);
// The mode exact: the application has connected its QP and will send. Nothing is posted yet.
void count_packets(Group& group);
// Destroys the QPs of all members but the default.
void twin_qps_destroy(Group& group);

// The index of a GID by its value and type (indices change when an address flaps), -1 when it is
// gone. `likely` is looked at first.
int gid_index_of(ibv_context* real, uint8_t port, const wire::Gid& gid, uint32_t type,
                 uint32_t likely);
// What stands at that place of the NIC's GID table; its type says how the NIC encapsulates what is
// sent from there.
std::optional<ibv_gid_entry> gid_at(ibv_context* real, uint8_t port, uint32_t index);

// The address at that place of the default NIC's GID table, as a QP of the application has used it.
std::optional<wire::Gid> gid_in_use(Context& context, uint32_t port, uint32_t index);

// Whether the member's port carries traffic now.
bool member_port_is_up(const Context& context, int member);

// An address of a port, its place in the GID table, and the network device that holds it (0: not
// known).
struct PortAddress {
  wire::Gid gid;
  uint32_t index;
  int ifindex;
};
// Those that can carry RoCE v2 over IPv4.
std::vector<PortAddress> port_addresses(ibv_context* real, uint8_t port);

// A GID of a port that holds no IPv4 address (link-local ones, other IPv6), and one that does and
// is of the same network device.
struct PortName {
  wire::Gid gid;
  wire::Gid address;
};
std::vector<PortName> port_names(ibv_context* real, uint8_t port);

}  // namespace shift::group
