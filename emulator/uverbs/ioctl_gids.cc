// Methods that read the GID table, which the kernel answers from its own copy. libibverbs would
// otherwise read three files for each entry.
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "fabric/flap.h"
#include "fabric/gid.h"
#include "fabric/net_device.h"
#include "uverbs/ioctl.h"
#include "uverbs/limits.h"

namespace cxemu {
namespace {

// The kernel is told when an address moves. Here it has to be asked, which takes longer than the
// rest of a call, so an answer serves for a moment.
uint32_t device_index(uint32_t ipv4_be) {
  constexpr uint64_t kMomentNs = 10'000'000;
  struct Known {
    uint32_t ipv4_be = 0, index = 0;
    uint64_t since_ns = 0;
  };
  static constinit thread_local Known known;
  const uint64_t now = monotonic_ns();
  if (known.ipv4_be != ipv4_be || now - known.since_ns > kMomentNs)
    known = {ipv4_be, net_device_of(ipv4_be).index, now};
  return known.index;
}

ib_uverbs_gid_entry entry_of(const FabricNic& nic, int index) {
  ib_uverbs_gid_entry entry{};
  uint8_t gid[16];
  nic_gid(nic, index, gid);
  memcpy(entry.gid, gid, sizeof gid);
  entry.gid_index = static_cast<uint32_t>(index);
  entry.port_num = 1;
  entry.gid_type = gid_is_roce_v2(index) ? IB_UVERBS_GID_TYPE_ROCE_V2 : IB_UVERBS_GID_TYPE_ROCE_V1;
  entry.netdev_ifindex = device_index(gid_ipv4_be(nic, index));
  return entry;
}

bool has_unknown_flags(const Attributes& attributes, uint16_t id) {
  uint32_t flags = 0;
  return attributes.has(id) && (!attributes.read(id, &flags) || flags != 0);
}

int gid_entry(Context& context, const Attributes& attributes) {
  uint32_t port, index;
  if (!attributes.read(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, &port) ||
      !attributes.read(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, &index) ||
      has_unknown_flags(attributes, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS)) {
    return EINVAL;
  }
  if (port != 1 || index >= kGidCount) return EINVAL;
  if (gid_is_empty(context.fabric_nic(), static_cast<int>(index))) return ENODATA;
  attributes.write(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
                   entry_of(context.fabric_nic(), static_cast<int>(index)));
  return 0;
}

int gid_table(Context& context, const Attributes& attributes) {
  uint64_t entry_size;
  if (!attributes.read(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, &entry_size) || entry_size == 0 ||
      has_unknown_flags(attributes, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS)) {
    return EINVAL;
  }
  const std::span<uint8_t> room = attributes.output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES);
  uint64_t count = 0;
  for (int index = 0; index < kGidCount; ++index) {
    if (gid_is_empty(context.fabric_nic(), index)) continue;
    const ib_uverbs_gid_entry entry = entry_of(context.fabric_nic(), index);
    if (entry_size > room.size() - count * entry_size) return EINVAL;
    // A program that was built with newer headers has longer entries, an older one shorter ones.
    uint8_t* place = room.data() + count++ * entry_size;
    memset(place, 0, entry_size);
    memcpy(place, &entry, std::min<size_t>(sizeof entry, entry_size));
  }
  attributes.write(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, count);
  return 0;
}

constexpr uint16_t kEntry[] = {
    UVERBS_ATTR_QUERY_GID_ENTRY_PORT, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX,
    UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS};
constexpr uint16_t kTable[] = {
    UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES,
    UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS};

constexpr Method kGidMethods[] = {
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, kTable, 3, gid_table,
     kKernelAnswers | kWorksInChild},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, kEntry, 3, gid_entry,
     kKernelAnswers | kWorksInChild},
};

}  // namespace

std::span<const Method> gid_methods() {
  return kGidMethods;
}

}  // namespace cxemu
