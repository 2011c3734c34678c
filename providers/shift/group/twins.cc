#include "group/twins.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "group/command_threads.h"
#include "group/context.h"
#include "group/domain.h"
#include "group/group.h"
#include "group/region.h"
#include "group/shared_queue.h"
#include "group/stock.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {
namespace {

// On the NIC's command thread.
void twin_cq_create(CompletionQueue& cq, int member, int entries) {
  if (cq.is_ending) return;
  Context& context = *cq.context;
  ibv_comp_channel* channel =
      cq.channel != nullptr ? cq.channel->real[member] : context.members[member].watch;
  if (cq.channel != nullptr && channel == nullptr) {
    // With a CQ but no channel there, a program that waits for events would wait for ever.
    SHIFT_WARN_LIMITED("%s: no completion channel on %s, and no CQ; its QPs cannot move there",
                       context.device->dev.name, context.name(member));
    return;
  }
  ibv_cq* real = stock->create_cq(context.members[member].real, entries, &cq, channel, 0);
  if (real == nullptr) {
    SHIFT_WARN_LIMITED("%s: no CQ on %s: errno %d; its QPs cannot move there",
                       context.device->dev.name, context.name(member), errno);
    return;
  }
  std::lock_guard lock(cq.mutex);
  cq.real[member] = real;
}

void twin_cq_destroy(CompletionQueue& cq, int member) {
  ibv_cq* real;
  {
    std::lock_guard lock(cq.mutex);
    real = std::exchange(cq.real[member], nullptr);
  }
  if (real != nullptr && stock->destroy_cq(real) != 0) {
    SHIFT_WARN_LIMITED("%s: a CQ on %s could not be destroyed", cq.context->device->dev.name,
                       cq.context->name(member));
  }
}

// What a region is registered as.
struct Registration {
  Held<ProtectionDomain> pd;
  void* addr;
  size_t length;
  uint64_t iova;
  unsigned access;
  uint32_t generation;
};

// The caller holds Context::mutex, or the region is known to this thread alone.
Registration registration_of(const MemoryRegion& region, ProtectionDomain& pd) {
  return {Held(&pd),   region.mr.addr, region.mr.length,
          region.iova, region.access,  region.generation};
}

ibv_mr* region_make(const MemoryRegion& region, const Registration& as, ibv_pd* real) {
  switch (region.kind) {
    case MemoryRegion::Kind::kMemory:
      return stock->reg_mr_iova2(real, as.addr, as.length, as.iova, as.access);
    case MemoryRegion::Kind::kDmabuf:
      return stock->reg_dmabuf_mr(real, region.offset, as.length, as.iova, region.fd.get(),
                                  static_cast<int>(as.access));
    case MemoryRegion::Kind::kNull:
      if (const auto* verbs = verbs_get_ctx_op(real->context, alloc_null_mr)) {
        return verbs->alloc_null_mr(real);
      }
      break;
    case MemoryRegion::Kind::kOnDefault:
      break;
  }
  errno = EOPNOTSUPP;
  return nullptr;
}

// On the NIC's command thread.
void twin_region_register(MemoryRegion& region, const Registration& as, int member) {
  ProtectionDomain& pd = *as.pd;
  Context& context = *Context::from(pd.pd.context);
  const auto is_over = [&] { return region.deregistered || region.generation != as.generation; };
  {
    std::lock_guard lock(context.mutex);
    if (is_over()) return;
    region.members[member].twin = MemoryRegion::Twin::kRunning;
  }
  ibv_mr* real = nullptr;
  errno = ENODEV;
  if (pd.real[member] != nullptr) real = region_make(region, as, pd.real[member]);
  if (real == nullptr) {
    SHIFT_WARN_LIMITED(
        "%s: a region of %zu bytes cannot be registered on %s (errno %d): QPs that "
        "use it cannot move there",
        context.device->dev.name, as.length, context.name(member), errno);
  }
  std::lock_guard lock(context.mutex);
  region.members[member].real = real;
  if (is_over()) return;  // this thread will be asked to end the registration, or has been
  region.members[member].twin =
      real != nullptr ? MemoryRegion::Twin::kReady : MemoryRegion::Twin::kFailed;
}

void twin_region_deregister(Context& context, MemoryRegion& region, int member) {
  ibv_mr* real;
  {
    std::lock_guard lock(context.mutex);
    real = std::exchange(region.members[member].real, nullptr);
  }
  if (real != nullptr) (void)stock->dereg_mr(real);
}

bool is_in(uint8_t members, int member) {
  return (members >> member & 1) != 0;
}

// A large region has many pages to pin.
std::chrono::nanoseconds time_for(size_t bytes) {
  constexpr size_t kMost = size_t{1} << 50;  // the length of a region may mean all memory
  return std::chrono::nanoseconds(std::min(bytes, kMost) * 4);  // 250 MB in a second
}

}  // namespace

void twin_cq_ensure(CompletionQueue& cq, int member) {
  if (cq.real[member] == nullptr) twin_cq_create(cq, member, cq.entries);
}

void twin_cqs_create(CompletionQueue& cq) {
  if (has_twins_on_demand(*cq.context)) return;
  for (int member = kDefault + 1; member < cq.context->member_count; member++) {
    (void)on_nic(*cq.context, member,
                 [held = Held(&cq), member] { twin_cq_create(*held, member, held->entries); });
  }
}

void twin_cqs_destroy(CompletionQueue& cq) {
  for (int member = kDefault + 1; member < cq.context->member_count; member++) {
    (void)on_nic(*cq.context, member,
                 [held = Held(&cq), member] { twin_cq_destroy(*held, member); });
  }
}

void twin_regions_register(const std::shared_ptr<MemoryRegion>& region, ProtectionDomain& pd) {
  Context& context = *Context::from(pd.pd.context);
  const Registration as = registration_of(*region, pd);
  uint8_t wanted;
  {
    std::lock_guard lock(context.mutex);
    wanted = pd.domain().registers_on;
    for (int member = kDefault + 1; member < context.member_count; member++)
      if (!is_in(wanted, member)) region->members[member].twin = MemoryRegion::Twin::kAbsent;
  }
  for (int member = kDefault + 1; member < context.member_count; member++) {
    if (!is_in(wanted, member)) continue;
    (void)on_nic(
        context, member, [region, as, member] { twin_region_register(*region, as, member); },
        time_for(as.length));
  }
}

void twin_regions_want(ProtectionDomain& pd, int member) {
  ProtectionDomain& domain = pd.domain();
  Context& context = *Context::from(domain.pd.context);
  if (member <= kDefault || member >= context.member_count) return;
  if (is_in(domain.registers_on, member)) return;
  std::lock_guard lock(context.mutex);
  if (is_in(domain.registers_on, member)) return;
  // A region that is not absent is about to be registered by whoever makes or changes it.
  for (const auto& [handle, region] : context.region_handles) {
    MemoryRegion::Twin& twin = region->members[member].twin;
    ProtectionDomain& own = *ProtectionDomain::from(region->mr.pd);
    if (twin != MemoryRegion::Twin::kAbsent || &own.domain() != &domain) continue;
    const auto task = [region = region, as = registration_of(*region, own), member] {
      twin_region_register(*region, as, member);
      std::lock_guard done(Context::from(as.pd->pd.context)->mutex);
      as.pd->domain().catching_up[member]--;
    };
    // The task needs the mutex, too, so it changes both after this does.
    if (!on_nic(context, member, task, time_for(region->mr.length))) {
      // Nobody would ask again, and requests would wait for ever.
      if (!SHIFT_PLANT(unasked_memory_awaited)) twin = MemoryRegion::Twin::kFailed;
      continue;
    }
    twin = MemoryRegion::Twin::kQueued;
    domain.catching_up[member]++;
  }
  // Whoever sees this need not wait for the mutex: the tasks are in the queue.
  domain.registers_on |= static_cast<uint8_t>(1u << member);
}

void twin_regions_want(Group& group, int member) {
  if (group.pd != nullptr) twin_regions_want(*group.pd, member);
  if (group.srq != nullptr && group.srq->pd != nullptr) twin_regions_want(*group.srq->pd, member);
}

bool twin_regions_catch_up(Group& group) {
  if (SHIFT_PLANT(late_memory_not_awaited)) return false;
  Context& context = *group.context;
  std::lock_guard lock(context.mutex);
  const auto catches_up = [&](ProtectionDomain* pd) {
    for (int member = kDefault + 1; pd != nullptr && member < context.member_count; member++)
      if (pd->domain().catching_up[member] != 0 && !is_late(context, member)) return true;
    return false;
  };
  return catches_up(group.pd) || (group.srq != nullptr && catches_up(group.srq->pd));
}

namespace {

// The caller holds Context::mutex. A region that is off the lists, or about to be registered anew,
// is not asked for meanwhile.
uint8_t present_on(const MemoryRegion& region) {
  uint8_t members = 0;
  for (int member = kDefault + 1; member < kMembersMax; member++) {
    if (region.members[member].twin != MemoryRegion::Twin::kAbsent)
      members |= static_cast<uint8_t>(1u << member);
  }
  return members;
}

void twin_regions_stop(const std::shared_ptr<MemoryRegion>& region, uint8_t members,
                       bool must_wait) {
  const Held pd(ProtectionDomain::from(region->mr.pd));
  Context& context = *Context::from(region->mr.context);
  for (int member = kDefault + 1; member < context.member_count; member++) {
    if (!is_in(members, member)) continue;
    const auto stop = [region, pd, member] {
      twin_region_deregister(*Context::from(pd->pd.context), *region, member);
    };
    if (must_wait || context.members[member].has_carried) {
      if (!is_late(context, member)) {
        (void)on_nic_and_wait(context, member, stop);
        continue;
      }
    }
    (void)on_nic(context, member, stop);
  }
}

}  // namespace

// The memory may be freed when the application's call returns. A NIC that carries nothing, and
// never did, does not use it.
void twin_regions_deregister(const std::shared_ptr<MemoryRegion>& region) {
  uint8_t present;
  {
    std::lock_guard lock(Context::from(region->mr.context)->mutex);
    region->deregistered = true;
    present = present_on(*region);
  }
  twin_regions_stop(region, present, false);
}

void twin_regions_end(const std::shared_ptr<MemoryRegion>& region) {
  uint8_t present;
  {
    std::lock_guard lock(Context::from(region->mr.context)->mutex);
    present = present_on(*region);
    region->twins_set(MemoryRegion::Twin::kQueued);
    region->generation++;
  }
  twin_regions_stop(region, present, true);
}

namespace {

void twin_qp_forget(Group& group, const ibv_qp& real, int member) {
  std::lock_guard lock(group.context->mutex);
  group.context->members[member].qps.erase(real.qp_num, &group.counters);
}

// On the NIC's command thread.
void twin_qp_destroy(Group& group, int member) {
  ibv_qp* real = group.real[member];
  if (real == nullptr) return;
  group.real[member] = nullptr;
  twin_qp_forget(group, *real, member);
  if (stock->destroy_qp(real) != 0) {
    SHIFT_WARN_LIMITED("qp 0x%x: its QP on %s could not be destroyed", group.qpn(),
                       group.context->name(member));
  }
}

}  // namespace

void twin_qps_destroy(Group& group) {
  read_back_end(group);
  for (int member = kDefault + 1; member < group.context->member_count; member++) {
    // What the QP still completes is nobody's from here on.
    if (const ibv_qp* real = group.real[member]) twin_qp_forget(group, *real, member);
    (void)on_nic(*group.context, member,
                 [held = Held(&group), member] { twin_qp_destroy(*held, member); });
  }
}

}  // namespace shift::group
