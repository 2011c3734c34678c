#include "group/keys.h"

#include "util/planted.h"

namespace shift::group {
namespace {

KeyState backup_of(const MemoryRegion& region) {
  switch (region.backup) {
    case MemoryRegion::Backup::kReady:
      return KeyState::kReady;
    case MemoryRegion::Backup::kFailed:
      return KeyState::kMissing;
    default:
      return KeyState::kPending;
  }
}

// Caller holds context.mutex.
KeyState local_key_locked(Context& context, uint32_t lkey, uint32_t* out) {
  auto it = context.regions.find(lkey);
  if (it == context.regions.end()) return KeyState::kMissing;
  const KeyState state = backup_of(*it->second);
  if (state == KeyState::kReady) *out = it->second->real[kBackup]->lkey;
  return state;
}

}  // namespace

KeyState local_key(Context& context, uint32_t lkey, uint32_t* out) {
  std::lock_guard lock(context.mutex);
  return local_key_locked(context, lkey, out);
}

bool translate_local(Context& context, ibv_sge* sges, int count,
                     std::chrono::steady_clock::time_point deadline) {
  if (SHIFT_PLANT(keys_untranslated)) return true;
  std::unique_lock lock(context.mutex);
  for (int i = 0; i < count; i++) {
    if (sges[i].length == 0) continue;
    KeyState state;
    while ((state = local_key_locked(context, sges[i].lkey, &sges[i].lkey)) == KeyState::kPending) {
      if (context.changed.wait_until(lock, deadline) == std::cv_status::timeout) return false;
    }
    if (state == KeyState::kMissing) return false;
  }
  return true;
}

KeyState exported_key(Context& context, const ProtectionDomain* pd, uint32_t rkey, uint32_t* out) {
  std::lock_guard lock(context.mutex);
  // mlx5 and rxe give a region one number for both keys; do not count on it.
  for (const auto& [lkey, region] : context.regions) {
    if (region->mr.rkey != rkey || region->mr.pd != &pd->pd) continue;
    const KeyState state = backup_of(*region);
    if (state == KeyState::kReady) *out = region->real[kBackup]->rkey;
    return state;
  }
  return KeyState::kMissing;
}

}  // namespace shift::group
