// What the layer holds for an open device: all that it knows of the members, and of the objects on
// them.
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
#include "group/held.h"
#include "group/qp_table.h"
#include "group/region_table.h"
#include "group/shown_gids.h"
#include "group/told_keys.h"
#include "util/fair_mutex.h"
#include "wire/names.h"

namespace shift::group {

struct CompletionQueue;
struct Group;
struct MemoryRegion;
struct SharedQueue;

// The fields between `mutex` and `events` are under `mutex`, unless a comment says otherwise; the
// others are set before the application gets the context.
struct Context {
  Device* device = nullptr;
  int member_count = 0;
  struct Member {
    ibv_context* real = nullptr;
    int nic = 0;          // the NIC's number in this process (command_threads.h)
    uint64_t number = 0;  // its own number (node GUID), by which other processes know it; 0: none
    QpTable qps;
    std::atomic<bool> dead{false};       // DEVICE_FATAL has come, or a call has answered EIO
    std::atomic<bool> port_down{false};  // as the control thread last heard
    bool is_soft_roce = false;           // Linux's soft-RoCE, which does not report some things
    // Its driver takes the completions of a QP that is destroyed or reset out of the CQs.
    bool cleans_cqs = false;
    // The default only: its NIC could not be opened. `real` is a context of another member's NIC,
    // so that the application's objects have something to stand on. It carries no traffic: the
    // member counts as dead.
    bool is_deputy = false;
    // A CQ for which the application has no channel is attached to this channel, armed for errors
    // only.
    ibv_comp_channel* watch = nullptr;
    // The GIDs of port 1 that carry RoCE v2 and an IPv4 address: their values, since indices
    // change.
    std::vector<wire::Gid> gids;  // control thread only
    uint32_t gid_index = 0;       // where the member's address was last found; command thread only
    // Groups have been committed to the member while it was not their default: its twins may be in
    // use.
    std::atomic<bool> has_carried{false};
    // Objects of the application's on this NIC that its command thread has yet to destroy.
    std::atomic<int> deferred{0};
  };
  PerMember<Member> members;
  // What the application makes after its NIC has died stands on these objects of another member's
  // NIC in place of the default's (ops/deputy.h). Null until then; under its mutex, and never
  // changed once it is there.
  struct Deputy {
    std::mutex mutex;
    int member = 0;  // whose NIC it is
    ibv_context* real = nullptr;
    ibv_pd* pd = nullptr;
    ibv_cq* cq = nullptr;
  };
  Deputy deputy;

  std::mutex mutex;
  RegionTable regions;
  ToldKeys told_keys;  // told_keys.h says which of its functions needs no mutex
  std::unordered_map<const ibv_mr*, std::shared_ptr<MemoryRegion>> region_handles;
  std::vector<CompletionQueue*> cqs;
  std::vector<Group*> groups;
  // Held while a thread works on the group of an event, and to take a group off `groups`; locked
  // before `mutex`. It is a FairMutex because a test must see that a thread waits for it.
  FairMutex event_mutex;
  // What each member can carry for the others, compared with them: 1 to 200. Set before the
  // application gets the context.
  PerMember<uint8_t> capacity;
  // A request keeps its place in a QP's queue until its completion is polled, on each member's NIC:
  // so no more completions of a queue can wait than it has places. Set before the application gets
  // the context.
  bool frees_by_polling = false;
  std::vector<SharedQueue*> srqs;
  // The layer's own QPs, which stand for no QP of the application.
  std::vector<const ibv_qp*> own_qps;
  std::atomic<int> objects{0};
  // QPs that the application has made and the layer does not protect, such as UD. The layer does
  // not see their end.
  std::atomic<uint32_t> stock_qps{0};

  Holders holders;  // the objects of the context, and tasks
  ~Context() { pthread_mutex_destroy(&verbs.context.mutex); }

  AsyncEvents events;  // the application reads them at context.async_fd

  // What the healthy NIC has answered: the application is shown this while a fault is masked (C9).
  ibv_device_attr_ex device_attr{};
  ibv_device_attr_ex common_attr{};  // what all members can do, by their answers at the start
  std::map<uint8_t, ibv_port_attr> port_attr;
  std::map<uint8_t, ibv_port_attr> port_limits;  // what all members can do that were up
  ShownGids shown_gids;
  // The default's GID table as its NIC gave it the last time that it was healthy, maybe to another
  // process.
  std::vector<ibv_gid_entry> remembered_gids;
  // The start PSNs of the layer's connections are drawn from it. Seeded at random when the device
  // is opened.
  std::atomic<uint64_t> psn_draws{0};

  verbs_context verbs{};  // its ibv_context is the application's handle; last, as the ABI wants

  ibv_context* handle() { return &verbs.context; }
  // The name of a member's NIC. Its ibv_device lives as long as the NIC is open, whatever device
  // lists are made meanwhile.
  const char* name(int member) const {
    const Member& one = members[member];
    return one.is_deputy ? device->dev.name : one.real->device->name;
  }
  static Context* from(ibv_context* context) {
    return reinterpret_cast<Context*>(reinterpret_cast<char*>(context) - offsetof(Context, verbs) -
                                      offsetof(verbs_context, context));
  }
};

// Whether CQs and QPs on the further members are made when they are needed: in a large group a QP
// needs few of them. In a small one all are made at once.
inline bool has_twins_on_demand(const Context& context) {
  constexpr int kSmall = 3;
  return context.member_count > kSmall;
}

}  // namespace shift::group
