// Protection domains and memory regions. The default's keys are the application's; the further
// members' registrations follow in the background.
#include <algorithm>
#include <atomic>
#include <memory>

#include "group/member.h"
#include "ops/entry.h"

namespace shift::ops {
namespace {

using group::Context;
using group::kDefault;
using group::MemoryRegion;
using group::ProtectionDomain;

// A key for a region that the default NIC, being dead, cannot have. It never reaches a NIC: with
// the default gone every key is translated.
uint32_t mint_key(Context& context) {
  static constinit std::atomic<uint32_t> next{0};
  std::lock_guard lock(context.mutex);
  for (;;) {
    const uint32_t key = 0xff000000 | (next++ & 0xffffff);
    if (!context.regions.contains(key)) return key;
  }
}

// The application must not notice that its NIC is gone (C9): the region lives on the others alone.
ibv_mr* register_on_twins(ProtectionDomain* pd, void* addr, size_t length, uint64_t iova,
                          unsigned access) {
  Context* context = Context::from(pd->pd.context);
  auto region = std::unique_ptr<MemoryRegion>(new (std::nothrow) MemoryRegion);
  if (region == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  region->mr.context = pd->pd.context;
  region->mr.pd = &pd->pd;
  region->mr.addr = addr;
  region->mr.length = length;
  region->mr.lkey = region->mr.rkey = mint_key(*context);
  region->access = access;
  region->iova = iova;
  {
    std::lock_guard lock(context->mutex);
    context->regions[region->mr.lkey] = region.get();
  }
  in_background_and_wait([&] { group::twin_regions_register(*region, *pd); });
  if (std::ranges::find(region->twin, MemoryRegion::Twin::kReady) == region->twin.end()) {
    std::lock_guard lock(context->mutex);
    context->regions.erase(region->mr.lkey);
    errno = EIO;
    return nullptr;
  }
  pd->users++;
  return &region.release()->mr;
}

bool default_is_dead(ProtectionDomain* pd) {
  return Context::from(pd->pd.context)->dead[kDefault];
}

ibv_mr* publish(ProtectionDomain* pd, ibv_mr* real, uint64_t iova, unsigned access) {
  auto region = std::unique_ptr<MemoryRegion>(new (std::nothrow) MemoryRegion);
  if (region == nullptr) {
    (void)below->dereg_mr(real);
    errno = ENOMEM;
    return nullptr;
  }
  region->mr = *real;
  region->mr.context = pd->pd.context;
  region->mr.pd = &pd->pd;
  region->real[kDefault] = real;
  region->access = access;
  region->iova = iova;
  Context* context = Context::from(pd->pd.context);
  {
    std::lock_guard lock(context->mutex);
    context->regions[region->mr.lkey] = region.get();
  }
  pd->users++;
  in_background([raw = region.get(), pd] { group::twin_regions_register(*raw, *pd); });
  return &region.release()->mr;
}

}  // namespace

ibv_pd* alloc_pd(ibv_context* context) noexcept {
  Context* c = Context::from(context);
  auto pd = std::unique_ptr<ProtectionDomain>(new (std::nothrow) ProtectionDomain);
  if (pd == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  pd->real[kDefault] = below->alloc_pd(c->real[kDefault]);
  if (pd->real[kDefault] == nullptr) return nullptr;
  pd->pd = *pd->real[kDefault];
  pd->pd.context = context;
  in_background([raw = pd.get(), c] {
    for (size_t member = kDefault + 1; member < static_cast<size_t>(c->members); member++) {
      raw->real[member] = below->alloc_pd(c->real[member]);
    }
  });
  return &pd.release()->pd;
}

int dealloc_pd(ibv_pd* pd) noexcept {
  auto* p = virtual_pd(pd);
  if (p->users != 0) return EBUSY;
  const int error = below->dealloc_pd(p->real[kDefault]);
  if (error != 0) return error;
  in_background_and_wait([p] {
    for (size_t member = kDefault + 1; member < p->real.size(); member++) {
      if (p->real[member] != nullptr) (void)below->dealloc_pd(p->real[member]);
    }
  });
  delete p;
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, int access) noexcept {
  auto* p = virtual_pd(pd);
  if (default_is_dead(p)) {
    return register_on_twins(p, addr, length, reinterpret_cast<uintptr_t>(addr),
                             static_cast<unsigned>(access));
  }
  ibv_mr* real = below->reg_mr(p->real[kDefault], addr, length, access);
  if (real == nullptr) return nullptr;
  return publish(p, real, reinterpret_cast<uintptr_t>(addr), static_cast<unsigned>(access));
}

ibv_mr* reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) noexcept {
  auto* p = virtual_pd(pd);
  if (default_is_dead(p)) {
    return register_on_twins(p, addr, length, iova, static_cast<unsigned>(access));
  }
  ibv_mr* real = below->reg_mr_iova(p->real[kDefault], addr, length, iova, access);
  if (real == nullptr) return nullptr;
  return publish(p, real, iova, static_cast<unsigned>(access));
}

ibv_mr* reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova,
                     unsigned access) noexcept {
  auto* p = virtual_pd(pd);
  if (default_is_dead(p)) return register_on_twins(p, addr, length, iova, access);
  ibv_mr* real = below->reg_mr_iova2(p->real[kDefault], addr, length, iova, access);
  if (real == nullptr) return nullptr;
  return publish(p, real, iova, access);
}

int dereg_mr(ibv_mr* mr) noexcept {
  auto* region = virtual_mr(mr);
  Context* context = Context::from(mr->context);
  // A memory window or a live QP may still need the default's: ask it first.
  const int error = region->real[kDefault] == nullptr ? 0 : below->dereg_mr(region->real[kDefault]);
  if (error != 0 && !context->dead[kDefault]) return error;
  {
    std::lock_guard lock(context->mutex);
    auto it = context->regions.find(mr->lkey);
    if (it != context->regions.end() && it->second == region) context->regions.erase(it);
  }
  in_background_and_wait([region] { group::twin_regions_deregister(*region); });
  virtual_pd(mr->pd)->users--;
  delete region;
  return 0;
}

// What a group of NICs cannot do yet is refused, never half done.
ibv_mr* reg_dmabuf_mr(ibv_pd*, uint64_t, size_t, uint64_t, int, int) noexcept {
  errno = EOPNOTSUPP;
  return nullptr;
}
int rereg_mr(ibv_mr*, int, ibv_pd*, void*, size_t, int) noexcept {
  return EOPNOTSUPP;
}
ibv_pd* import_pd(ibv_context*, uint32_t) noexcept {
  errno = EOPNOTSUPP;
  return nullptr;
}
void unimport_pd(ibv_pd*) noexcept {}
ibv_mr* import_mr(ibv_pd*, uint32_t) noexcept {
  errno = EOPNOTSUPP;
  return nullptr;
}
void unimport_mr(ibv_mr*) noexcept {}
ibv_dm* import_dm(ibv_context*, uint32_t) noexcept {
  errno = EOPNOTSUPP;
  return nullptr;
}
void unimport_dm(ibv_dm*) noexcept {}

}  // namespace shift::ops
