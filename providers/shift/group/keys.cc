#include "group/keys.h"

#include "util/config.h"
#include "util/planted.h"

namespace shift::group {
namespace {

KeyState twin_of(const MemoryRegion& region, size_t member) {
  if (member == kDefault) {
    // A region made while the default was dead lives on the others only.
    return region.real[kDefault] != nullptr ? KeyState::kReady : KeyState::kMissing;
  }
  switch (region.twin[member]) {
    case MemoryRegion::Twin::kReady:
      return KeyState::kReady;
    case MemoryRegion::Twin::kFailed:
      return KeyState::kMissing;
    default:
      return KeyState::kPending;
  }
}

// Caller holds context.mutex.
KeyState local_key_locked(Context& context, size_t member, uint32_t lkey, uint32_t* out) {
  const MemoryRegion* region = context.regions.by_lkey(lkey);
  if (region == nullptr) return KeyState::kMissing;
  const KeyState state = twin_of(*region, member);
  if (state == KeyState::kReady) *out = region->real[member]->lkey;
  return state;
}

// Caller holds context.mutex. All of them or none.
KeyState translate_locked(Context& context, int member, ibv_sge* sges, int count) {
  if (member == kDefault || SHIFT_PLANT(local_keys_untranslated)) return KeyState::kReady;
  uint32_t keys[kMaxSge];
  for (int i = 0; i < count; i++) {
    if (sges[i].length == 0) continue;
    const auto state =
        local_key_locked(context, static_cast<size_t>(member), sges[i].lkey, &keys[i]);
    if (state != KeyState::kReady) return state;
  }
  for (int i = 0; i < count; i++) {
    if (sges[i].length != 0) sges[i].lkey = keys[i];
  }
  return KeyState::kReady;
}

}  // namespace

KeyState translate_local(Context& context, int member, ibv_sge* sges, int count) {
  std::lock_guard lock(context.mutex);
  return translate_locked(context, member, sges, count);
}

bool translate_local(Context& context, int member, ibv_sge* sges, int count,
                     std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(context.mutex);
  KeyState state;
  while ((state = translate_locked(context, member, sges, count)) == KeyState::kPending) {
    if (context.changed.wait_until(lock, deadline) == std::cv_status::timeout) return false;
  }
  return state == KeyState::kReady;
}

std::chrono::steady_clock::time_point registration_deadline() {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(config().exchange_ms);
}

KeyState exported_key(Context& context, int member, const ProtectionDomain* pd, uint32_t rkey,
                      uint32_t* out) {
  std::lock_guard lock(context.mutex);
  const MemoryRegion* region = context.regions.by_rkey(rkey, pd->domain());
  if (region == nullptr) return KeyState::kMissing;
  const auto m = static_cast<size_t>(member);
  const KeyState state = twin_of(*region, m);
  if (state == KeyState::kReady) *out = region->real[m]->rkey;
  return state;
}

}  // namespace shift::group
