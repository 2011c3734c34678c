// What stands for an open device: all that is known of its members, and of the objects on them.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "group/async_events.h"
#include "group/device.h"
#include "group/qp_table.h"
#include "group/region_table.h"
#include "util/fair_mutex.h"
#include "wire/names.h"

namespace shift::group {

struct CompletionQueue;
struct Group;
struct MemoryRegion;
struct SharedQueue;

// What stands between `mutex` and `events` is under `mutex`, but for what is noted; the rest is set
// before the application has it.
struct Context {
  Device* device = nullptr;
  int member_count = 0;
  struct Member {
    ibv_context* real = nullptr;
    QpTable qps;
    std::atomic<bool> dead{false};  // DEVICE_FATAL seen, or a call said EIO
    bool is_soft_roce = false;      // Linux's, which leaves some things untold
    // CQs without a channel of the application's own are attached to it, armed for errors only.
    ibv_comp_channel* watch = nullptr;
    // GIDs of its port 1 that carry RoCE v2 and an IPv4 address, by value.
    std::vector<wire::Gid> gids;  // control thread only
    uint32_t gid_index = 0;       // where an own address was found last; worker only
  };
  PerMember<Member> members;

  std::mutex mutex;
  RegionTable regions;
  std::unordered_map<const ibv_mr*, std::shared_ptr<MemoryRegion>> region_handles;
  std::vector<CompletionQueue*> cqs;
  std::vector<Group*> groups;
  // Before `mutex`: held while an event's group is worked on, and to take a group off `groups`. Of
  // this kind since one can see who waits for it: a test does.
  FairMutex event_mutex;
  std::vector<SharedQueue*> srqs;
  std::vector<const ibv_qp*> own_qps;  // that stand for nothing of the application's
  std::atomic<int> objects{0};

  AsyncEvents events;  // behind context.async_fd

  // What a healthy NIC answered: while its fault is masked, these are shown (C9).
  ibv_device_attr_ex device_attr{};
  ibv_device_attr_ex common_attr{};  // what all members can do, as they said when they were opened
  std::map<uint8_t, ibv_port_attr> port_attr;
  std::map<uint8_t, ibv_port_attr> port_limits;  // what all members that were up can do
  // Start PSNs of our connections are drawn from it. Seeded at random when the device is opened.
  std::atomic<uint64_t> psn_draws{0};

  verbs_context verbs{};  // its ibv_context is the application's handle; last, as the ABI wants

  ibv_context* handle() { return &verbs.context; }
  // Of a member's NIC. Its device lives as long as it is open, whatever lists are made meanwhile.
  const char* name(int member) const { return members[member].real->device->name; }
  static Context* from(ibv_context* context) {
    return reinterpret_cast<Context*>(reinterpret_cast<char*>(context) - offsetof(Context, verbs) -
                                      offsetof(verbs_context, context));
  }
};

}  // namespace shift::group
