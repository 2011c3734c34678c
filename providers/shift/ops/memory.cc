// Memory regions. The application gets the keys of the default NIC. The command threads register
// the region on the further members later.
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>

#include "group/port.h"
#include "group/region.h"
#include "group/twins.h"
#include "ops/entry.h"
#include "ops/fresh_key.h"
#include "ops/tables.h"
#include "util/log.h"

namespace shift::ops {
namespace {

using group::Context;
using group::kDefault;
using group::MemoryRegion;
using group::ProtectionDomain;
using Kind = MemoryRegion::Kind;

// Gives the default NIC's region its real context and PD back while the stock library works on it.
// At other times the region shows the virtual ones, because it is the application's handle.
class Unveiled {
 public:
  explicit Unveiled(MemoryRegion& region) : real_(region.members[kDefault].real) {
    shown_context_ = real_->context;
    shown_pd_ = real_->pd;
    real_->context = Context::from(shown_context_)->members[kDefault].real;
    real_->pd = virtual_pd(shown_pd_)->real[kDefault];
  }
  // Must not be called when the stock library has freed the region.
  void veil(ibv_pd* pd = nullptr) {
    real_->context = shown_context_;
    real_->pd = pd != nullptr ? pd : shown_pd_;
  }

 private:
  ibv_mr* real_;
  ibv_context* shown_context_;
  ibv_pd* shown_pd_;
};

// Makes up a key for a region that cannot be registered on the default NIC, because that NIC is
// dead. Such a key never reaches a NIC: on the other members each key is translated.
uint32_t mint_key(Context& context) {
  static constinit std::atomic<uint32_t> next{0};
  std::lock_guard lock(context.mutex);
  for (;;) {
    const uint32_t key = 0xff000000 | (next++ & 0xffffff);
    if (context.regions.by_lkey(key) != nullptr) continue;
    // While every number is withheld, those that were used last are still far away.
    if (context.told_keys.withholds_every() || !context.told_keys.withholds(key)) return key;
  }
}

void enlist(Context& context, const std::shared_ptr<MemoryRegion>& region) {
  std::lock_guard lock(context.mutex);
  context.region_handles.emplace(region->shown(), region);
  try {
    context.regions.add(*region);
  } catch (const std::bad_alloc&) {
    context.region_handles.erase(region->shown());
    throw;
  }
}

// From here on no peer is told the region's key, and those who were told it hear that it is gone.
// Until they have forgotten it, no region of the application gets its number.
void strike(Context& context, MemoryRegion& region) {
  bool was_told;
  {
    std::lock_guard lock(context.mutex);
    context.region_handles.erase(region.shown());
    context.regions.remove(region);
    was_told = context.told_keys.withdraw(region.mr.rkey);
  }
  if (was_told) coordinator().keys_gone(&context);
}

std::shared_ptr<MemoryRegion> region_of(ibv_mr* mr) {
  Context* context = Context::from(mr->context);
  std::lock_guard lock(context->mutex);
  const auto it = context->region_handles.find(mr);
  return it != context->region_handles.end() ? it->second : nullptr;
}

// Registers the region on the further members alone: the application must not notice that its NIC
// is gone (C9).
ibv_mr* register_on_twins(const std::shared_ptr<MemoryRegion>& region, ProtectionDomain& pd) {
  Context& context = *Context::from(pd.pd.context);
  region->mr.lkey = region->mr.rkey = mint_key(context);
  enlist(context, region);
  for (int member = kDefault + 1; member < context.member_count; member++)
    group::twin_regions_want(pd, member);
  group::twin_regions_register(region, pd);
  for (int member = kDefault + 1; member < context.member_count; member++)
    (void)group::on_nic_and_wait(context, member, [] {});
  std::unique_lock lock(context.mutex);
  const bool is_ready = region->any_twin(MemoryRegion::Twin::kReady);
  lock.unlock();
  if (!is_ready) {
    strike(context, *region);
    group::twin_regions_deregister(region);
    errno = EIO;
    return nullptr;
  }
  pd.users++;
  return &region->mr;
}

// Whether all members can register a region with that access. With paging on demand a region is
// refused when only a further member lacks it. If the default NIC itself lacks it, the application
// gets that NIC's own error.
bool all_can(const Context& context, unsigned access) {
  if (!(access & IBV_ACCESS_ON_DEMAND)) return true;
  if (!(context.device_attr.odp_caps.general_caps & IBV_ODP_SUPPORT)) return true;
  if (context.common_attr.odp_caps.general_caps & IBV_ODP_SUPPORT) return true;
  SHIFT_WARN_LIMITED("%s: a region with paging on demand is refused: a NIC of the group cannot",
                     context.device->dev.name);
  return false;
}

// Logs a likely cause of the ENOMEM that the application gets: its regions are registered on the
// further members, too.
void tell_if_memory_is_short(Context& context, ProtectionDomain& pd, const MemoryRegion& region) {
  if (errno != ENOMEM || region.kind != Kind::kMemory) return;
  int nics = 1;
  {
    std::lock_guard lock(context.mutex);
    for (int member = kDefault + 1; member < context.member_count; member++)
      nics += pd.domain().registers_on >> member & 1;
  }
  SHIFT_WARN_LIMITED(
      "%s: a region of %zu bytes is refused for want of memory; each is registered on %d NICs, and "
      "RLIMIT_MEMLOCK (ulimit -l) counts it as often",
      context.device->dev.name, region.mr.length, nics);
  errno = ENOMEM;
}

// Called after a call has failed. True: the driver seems to have let go of the default NIC,
// although the layer has not yet learned of the NIC's death. This is no proof of that death, so
// only this region is made without the NIC.
bool is_going(const Context& context) {
  const int error = errno;
  const bool is_gone =
      (error == EIO || error == ENODEV) && !group::member_port_is_up(context, kDefault);
  errno = error;
  return is_gone;
}

void drop_region(ibv_mr* real) {
  (void)stock->dereg_mr(real);
}

// `on_default` registers, on the default NIC's PD, the memory that `region` describes, and `drop`
// takes that back.
template <typename Register>
ibv_mr* add_region(const std::shared_ptr<MemoryRegion>& region, ibv_pd* pd, Register on_default,
                   void (*drop)(ibv_mr*) = drop_region, size_t tries = kFreshTries) {
  ProtectionDomain& p = *virtual_pd(pd);
  Context& context = *Context::from(pd->context);
  if (!all_can(context, region->access)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  region->mr.context = pd->context;
  region->mr.pd = pd;
  if (context.members[kDefault].dead) return register_on_twins(region, p);
  ibv_mr* real = on_default(p.real[kDefault]);
  if (real == nullptr) tell_if_memory_is_short(context, p, *region);
  real = fresh(
      context, real, [&] { return on_default(p.real[kDefault]); }, drop, tries);
  if (real == nullptr) {
    if (is_going(context)) return register_on_twins(region, p);
    return nullptr;
  }
  region->mr = *real;
  region->mr.context = pd->context;
  region->mr.pd = pd;
  region->members[kDefault].real = real;
  try {
    enlist(context, region);
  } catch (const std::bad_alloc&) {
    drop(real);
    throw;
  }
  real->context = pd->context;
  real->pd = pd;
  p.users++;
  group::twin_regions_register(region, p);
  return region->shown();
}

std::shared_ptr<MemoryRegion> describe(Kind kind, void* addr, size_t length, uint64_t iova,
                                       unsigned access) {
  auto region = std::make_shared<MemoryRegion>();
  region->mr = {};
  region->kind = kind;
  region->mr.addr = addr;
  region->mr.length = length;
  region->iova = iova;
  region->access = access;
  return region;
}

std::shared_ptr<MemoryRegion> describe_memory(void* addr, size_t length, uint64_t iova,
                                              unsigned access) {
  return describe(Kind::kMemory, addr, length, iova, access);
}

ibv_mr* no_memory() {
  errno = ENOMEM;
  return nullptr;
}

}  // namespace

ibv_mr* reg_mr(ibv_pd* pd, void* addr, size_t length, int access) noexcept try {
  return add_region(describe_memory(addr, length, reinterpret_cast<uintptr_t>(addr),
                                    static_cast<unsigned>(access)),
                    pd, [=](ibv_pd* real) { return stock->reg_mr(real, addr, length, access); });
} catch (const std::bad_alloc&) {
  return no_memory();
}

ibv_mr* reg_mr_iova(ibv_pd* pd, void* addr, size_t length, uint64_t iova, int access) noexcept try {
  return add_region(
      describe_memory(addr, length, iova, static_cast<unsigned>(access)), pd,
      [=](ibv_pd* real) { return stock->reg_mr_iova(real, addr, length, iova, access); });
} catch (const std::bad_alloc&) {
  return no_memory();
}

ibv_mr* reg_mr_iova2(ibv_pd* pd, void* addr, size_t length, uint64_t iova, unsigned access) noexcept
    try {
  return add_region(describe_memory(addr, length, iova, access), pd, [=](ibv_pd* real) {
    return stock->reg_mr_iova2(real, addr, length, iova, access);
  });
} catch (const std::bad_alloc&) {
  return no_memory();
}

ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                      int access) noexcept try {
  auto region = describe(Kind::kDmabuf, nullptr, length, iova, static_cast<unsigned>(access));
  // The application may close its descriptor before the command threads have registered the region
  // on the further members, so the layer keeps a copy. A failed copy is no error here: NCCL passes
  // no valid descriptor, and learns from the default NIC's error whether that NIC can register any
  // buffer.
  region->fd = UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  region->offset = offset;
  return add_region(region, pd, [=](ibv_pd* real) {
    return stock->reg_dmabuf_mr(real, offset, length, iova, fd, access);
  });
} catch (const std::bad_alloc&) {
  return no_memory();
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) noexcept
    try {
  // This is memory of the device, which no other NIC reaches.
  return add_region(describe(Kind::kOnDefault, nullptr, length, 0, access), pd,
                    [=](ibv_pd* real) -> ibv_mr* {
                      if (const auto* verbs = verbs_get_ctx_op(real->context, reg_dm_mr)) {
                        return verbs->reg_dm_mr(real, dm, offset, length, access);
                      }
                      errno = EOPNOTSUPP;
                      return nullptr;
                    });
} catch (const std::bad_alloc&) {
  return no_memory();
}

ibv_mr* alloc_null_mr(ibv_pd* pd) noexcept try {
  return add_region(describe(Kind::kNull, nullptr, 0, 0, 0), pd, [](ibv_pd* real) -> ibv_mr* {
    if (const auto* verbs = verbs_get_ctx_op(real->context, alloc_null_mr)) {
      return verbs->alloc_null_mr(real);
    }
    errno = EOPNOTSUPP;
    return nullptr;
  });
} catch (const std::bad_alloc&) {
  return no_memory();
}

// The address of an imported region is not known here, so the region stays on the default NIC. Its
// key is what it is, however often the region is imported.
ibv_mr* import_mr(ibv_pd* pd, uint32_t handle) noexcept try {
  return add_region(
      describe(Kind::kOnDefault, nullptr, 0, 0, 0), pd,
      [=](ibv_pd* real) { return stock->import_mr(real, handle); },
      [](ibv_mr* real) { stock->unimport_mr(real); }, 1);
} catch (const std::bad_alloc&) {
  return no_memory();
}

namespace {

void forget_region(const std::shared_ptr<MemoryRegion>& region) {
  group::twin_regions_deregister(region);
  virtual_pd(region->mr.pd)->users--;
}

}  // namespace

int dereg_mr(ibv_mr* mr) noexcept {
  const auto region = region_of(mr);
  if (region == nullptr) return EINVAL;
  Context& context = *Context::from(mr->context);
  // The region is taken off the lists first: once the default NIC's region is destroyed, another
  // region may get its address and its key at once.
  strike(context, *region);
  // The default NIC may refuse, because a memory window or a live QP still needs the region. So it
  // is asked before the other members.
  if (region->members[kDefault].real != nullptr) {
    Unveiled unveiled(*region);
    const int error = group::default_destroy(context, false, [mr] { return stock->dereg_mr(mr); });
    if (error != 0 && !context.members[kDefault].dead) {
      unveiled.veil();
      try {
        enlist(context, region);
      } catch (const std::bad_alloc&) {
        return ENOMEM;
      }
      return error;
    }
  }
  forget_region(region);
  return 0;
}

void unimport_mr(ibv_mr* mr) noexcept {
  const auto region = region_of(mr);
  if (region == nullptr) return;
  strike(*Context::from(mr->context), *region);
  const Unveiled unveiled(*region);
  stock->unimport_mr(mr);
  forget_region(region);
}

namespace {

// From here on, peers that were told the region's keys hear that they are gone.
void withdraw_keys(MemoryRegion& region) {
  Context& context = *Context::from(region.mr.context);
  bool was_told;
  {
    std::lock_guard lock(context.mutex);
    was_told = context.told_keys.withdraw(region.mr.rkey);
  }
  if (was_told) coordinator().keys_gone(&context);
}

// A region that was registered anew may have kept its number. Then the peers must have forgotten
// the key that it had on other NICs. False: they have not within the bound.
bool await_forgotten(Context& context, uint32_t rkey) {
  if (!context.told_keys.withholds_any()) return true;
  std::unique_lock lock(context.mutex);
  const auto& told = context.told_keys;
  return context.told_keys.await(lock, fresh_deadline(), [&] { return !told.withholds(rkey); });
}

// Registers the region on the further members anew. No request uses the old registrations
// meanwhile, because their keys are withdrawn.
void renew_twins(const std::shared_ptr<MemoryRegion>& region, const ibv_mr& as, unsigned access,
                 uint64_t iova) {
  withdraw_keys(*region);
  group::twin_regions_end(region);
  {
    std::lock_guard lock(Context::from(region->mr.context)->mutex);
    region->mr = as;
    region->access = access;
    region->iova = iova;
  }
  group::twin_regions_register(region, *virtual_pd(as.pd));
}

}  // namespace

int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) noexcept
    try {
  const auto region = region_of(mr);
  if (region == nullptr) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  Context& context = *Context::from(mr->context);
  const bool has_pd = flags & IBV_REREG_MR_CHANGE_PD;
  if (has_pd && pd == nullptr) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  ibv_pd* new_pd = has_pd ? pd : region->mr.pd;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) && !all_can(context, static_cast<unsigned>(access))) {
    errno = EOPNOTSUPP;
    return IBV_REREG_MR_ERR_INPUT;
  }
  if (!context.members[kDefault].dead && region->members[kDefault].real != nullptr) {
    ibv_pd* real_pd = has_pd ? virtual_pd(pd)->real[kDefault] : nullptr;
    strike(context, *region);
    Unveiled unveiled(*region);
    const int error = stock->rereg_mr(mr, flags, real_pd, addr, length, access);
    const int reason = errno;
    unveiled.veil(error == 0 ? new_pd : nullptr);
    region->mr.lkey = mr->lkey;
    region->mr.rkey = mr->rkey;
    enlist(context, region);
    errno = reason;
    if (error != 0) return error;
  }
  ibv_mr as = region->mr;
  as.pd = new_pd;
  uint64_t iova = region->iova;
  if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
    as.addr = addr;
    as.length = length;
    iova = reinterpret_cast<uintptr_t>(addr);
  }
  const bool has_access = flags & IBV_REREG_MR_CHANGE_ACCESS;
  if (new_pd != region->mr.pd) {
    virtual_pd(region->mr.pd)->users--;
    virtual_pd(new_pd)->users++;
  }
  renew_twins(region, as, has_access ? static_cast<unsigned>(access) : region->access, iova);
  if (await_forgotten(context, region->mr.rkey)) return 0;
  tell_of_withheld(context, region->mr.rkey);
  errno = ENOMEM;
  return IBV_REREG_MR_ERR_CMD;
} catch (const std::bad_alloc&) {
  errno = ENOMEM;
  return IBV_REREG_MR_ERR_CMD;
}

// Advises the default NIC alone. The further members fault their pages in when a request uses them.
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges,
              uint32_t count) noexcept {
  ibv_pd* real = virtual_pd(pd)->real[kDefault];
  const auto* verbs = verbs_get_ctx_op(real->context, advise_mr);
  return verbs != nullptr ? verbs->advise_mr(real, advice, flags, sges, count) : EOPNOTSUPP;
}

}  // namespace shift::ops
