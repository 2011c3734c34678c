#include "group/keys.h"

#include <algorithm>
#include <mutex>

#include "group/completion.h"
#include "group/context.h"
#include "group/domain.h"
#include "group/group.h"
#include "group/region.h"
#include "group/twins.h"
#include "util/planted.h"

namespace shift::group {
namespace {

KeyState twin_of(const MemoryRegion& region, int member) {
  if (member == kDefault) {
    // A region that was made while the default was dead exists on the other members only.
    return region.members[kDefault].real != nullptr ? KeyState::kReady : KeyState::kMissing;
  }
  switch (region.members[member].twin) {
    case MemoryRegion::Twin::kReady:
      return KeyState::kReady;
    case MemoryRegion::Twin::kFailed:
    case MemoryRegion::Twin::kAbsent:
      return KeyState::kMissing;
    default:
      return KeyState::kPending;
  }
}

// `absent` becomes the domain of a region that nobody has asked for on the member. The caller holds
// context.mutex.
KeyState local_key_locked(Context& context, int member, uint32_t lkey, uint32_t* out,
                          Held<ProtectionDomain>& absent) {
  const MemoryRegion* region = context.regions.by_lkey(lkey);
  if (region == nullptr) return KeyState::kMissing;
  if (region->members[member].twin == MemoryRegion::Twin::kAbsent) {
    absent = Held(ProtectionDomain::from(region->mr.pd));
    return KeyState::kPending;
  }
  const KeyState state = twin_of(*region, member);
  if (state == KeyState::kReady) *out = region->members[member].real->lkey;
  return state;
}

// Translates all keys or none. The caller holds context.mutex.
KeyState translate_locked(Context& context, int member, ibv_sge* sges, int count,
                          Held<ProtectionDomain>& absent) {
  if (member == kDefault || SHIFT_PLANT(local_keys_untranslated)) return KeyState::kReady;
  uint32_t keys[kMaxSge];
  for (int i = 0; i < count; i++) {
    if (sges[i].length == 0) continue;
    const auto state = local_key_locked(context, member, sges[i].lkey, &keys[i], absent);
    if (state != KeyState::kReady) return state;
  }
  for (int i = 0; i < count; i++) {
    if (sges[i].length != 0) sges[i].lkey = keys[i];
  }
  return KeyState::kReady;
}

// The caller holds context.mutex.
KeyState exported_key_locked(Context& context, int member, const ProtectionDomain* pd,
                             uint32_t rkey, uint32_t* out) {
  const MemoryRegion* region = context.regions.by_rkey(rkey, pd->domain());
  if (region == nullptr) return KeyState::kMissing;
  const KeyState state = twin_of(*region, member);
  if (state == KeyState::kReady) *out = region->members[member].real->rkey;
  if (state == KeyState::kMissing && SHIFT_PLANT(key_of_dead_told)) {
    *out = rkey;
    return KeyState::kReady;
  }
  return state;
}

// A region that is gone is not pending. The caller holds context.mutex.
bool any_pending_locked(Context& context, const ibv_sge* sges, int count) {
  return std::any_of(sges, sges + count, [&](const ibv_sge& sge) {
    if (sge.length == 0) return false;
    const MemoryRegion* region = context.regions.by_lkey(sge.lkey);
    for (int m = 1; region != nullptr && m < context.member_count; m++) {
      if (twin_of(*region, m) == KeyState::kPending) return true;
    }
    return false;
  });
}

}  // namespace

bool round_awaits_registration(Group& group, uint64_t receives_end) {
  if (twin_regions_catch_up(group)) return true;
  std::lock_guard send(group.send.mutex);
  std::lock_guard recv(group.recv.mutex);
  const SendJournal& sends = group.send.journal;
  const RecvJournal& receives = group.recv.journal;
  uint64_t first_send, first_receive;
  {
    CqLock lock(group);
    first_send = sends.first_incomplete(static_cast<uint32_t>(group.counters.done[0]));
    first_receive = group.counters.done[1];
  }
  std::lock_guard regions(group.context->mutex);
  ibv_sge sges[kMaxSge];
  for (uint64_t i = first_receive; i < std::min(receives_end, receives.head()); i++) {
    ibv_recv_wr wr;
    receives.rebuild(i, &wr, sges);
    if (any_pending_locked(*group.context, sges, wr.num_sge)) return true;
  }
  for (uint64_t i = first_send; i < group.send.posted; i++) {
    if (sends.at(i).opcode != IBV_WR_RDMA_READ) continue;
    ibv_send_wr wr;
    sends.rebuild(i, &wr, sges);
    if (any_pending_locked(*group.context, sges, wr.num_sge)) return true;
  }
  return false;
}

KeyState translate_local(Context& context, int member, ibv_sge* sges, int count) {
  Held<ProtectionDomain> absent;
  KeyState state;
  {
    std::lock_guard lock(context.mutex);
    state = translate_locked(context, member, sges, count, absent);
  }
  // A path to the member asks for it when it is made; this is for memory of a domain that no QP has
  // named so far.
  if (absent.get() != nullptr) twin_regions_want(*absent, member);
  return state;
}

KeyState exported_key(Context& context, int member, const ProtectionDomain* pd, uint32_t rkey,
                      uint32_t* out) {
  std::lock_guard lock(context.mutex);
  return exported_key_locked(context, member, pd, rkey, out);
}

KeyState tell_key(Group& group, int member, uint32_t rkey, uint32_t* out) {
  Context& context = *group.context;
  std::lock_guard lock(context.mutex);
  const KeyState state = exported_key_locked(context, member, group.pd, rkey, out);
  // The region may go as soon as the lock is free.
  if (state == KeyState::kReady) context.told_keys.tell(group.life.serial, rkey);
  return state;
}

void told_keys_forget(Group& group) {
  std::lock_guard lock(group.context->mutex);
  group.context->told_keys.forget(group.life.serial);
}

}  // namespace shift::group
