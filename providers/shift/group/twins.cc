#include "group/twins.h"

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <utility>

#include "group/context.h"
#include "group/domain.h"
#include "group/group.h"
#include "group/region.h"
#include "group/stock.h"
#include "util/log.h"

namespace shift::group {
namespace {

void twin_cq_create(CompletionQueue& cq, int member) {
  Context& context = *cq.context;
  ibv_comp_channel* channel =
      cq.channel != nullptr ? cq.channel->real[member] : context.members[member].watch;
  if (cq.channel != nullptr && channel == nullptr) {
    // With a CQ but no channel there, a program that waits for events would wait for ever.
    SHIFT_WARN_LIMITED("%s: no completion channel on %s, and no CQ; its QPs cannot move there",
                       context.device->dev.name, context.name(member));
    return;
  }
  ibv_cq* real =
      stock->create_cq(context.members[member].real, cq.real[kDefault]->cqe, &cq, channel, 0);
  if (real == nullptr) {
    SHIFT_WARN_LIMITED("%s: no CQ on %s: errno %d; its QPs cannot move there",
                       context.device->dev.name, context.name(member), errno);
    return;
  }
  std::lock_guard lock(cq.mutex);
  cq.real[member] = real;
}

ibv_mr* region_make(const MemoryRegion& region, ibv_pd* real) {
  switch (region.kind) {
    case MemoryRegion::Kind::kMemory:
      return stock->reg_mr_iova2(real, region.mr.addr, region.mr.length, region.iova,
                                 region.access);
    case MemoryRegion::Kind::kDmabuf:
      return stock->reg_dmabuf_mr(real, region.offset, region.mr.length, region.iova,
                                  region.fd.get(), static_cast<int>(region.access));
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

void twin_region_register(MemoryRegion& region, ProtectionDomain& pd, int member) {
  Context& context = *Context::from(pd.pd.context);
  {
    std::lock_guard lock(context.mutex);
    if (region.deregistered) return;
    region.members[member].twin = MemoryRegion::Twin::kRunning;
  }
  ibv_mr* real = nullptr;
  errno = ENODEV;
  if (pd.real[member] != nullptr) real = region_make(region, pd.real[member]);
  if (real == nullptr) {
    SHIFT_WARN_LIMITED(
        "%s: a region of %zu bytes cannot be registered on %s (errno %d): QPs that "
        "use it cannot move there",
        context.device->dev.name, region.mr.length, context.name(member), errno);
  }
  std::lock_guard lock(context.mutex);
  region.members[member].real = real;
  region.members[member].twin =
      real != nullptr ? MemoryRegion::Twin::kReady : MemoryRegion::Twin::kFailed;
}

}  // namespace

void twin_cqs_create(CompletionQueue& cq) {
  for (int member = kDefault + 1; member < cq.context->member_count; member++) {
    twin_cq_create(cq, member);
  }
}

void twin_cqs_destroy(CompletionQueue& cq) {
  for (int member = kDefault + 1; member < kMembersMax; member++) {
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
}

int real_cqs_destroy(CompletionQueue& cq) {
  const int error = stock->destroy_cq(cq.real[kDefault]);
  if (error == 0) twin_cqs_destroy(cq);
  return error;
}

void twin_regions_register(MemoryRegion& region, ProtectionDomain& pd) {
  const int members = Context::from(pd.pd.context)->member_count;
  for (int member = kDefault + 1; member < members; member++) {
    twin_region_register(region, pd, member);
  }
}

bool twin_regions_stop(MemoryRegion& region) {
  Context& context = *Context::from(region.mr.context);
  std::lock_guard lock(context.mutex);
  region.deregistered = true;
  return region.any_twin(MemoryRegion::Twin::kRunning);
}

void twin_regions_deregister(MemoryRegion& region) {
  for (int member = kDefault + 1; member < kMembersMax; member++) {
    ibv_mr* real = std::exchange(region.members[member].real, nullptr);
    if (real != nullptr) (void)stock->dereg_mr(real);
  }
}

void twin_qps_destroy(Group& group) {
  read_back_end(group);
  for (int member = kDefault + 1; member < kMembersMax; member++) {
    ibv_qp* real = std::exchange(group.real[member], nullptr);
    if (real == nullptr) continue;
    {
      std::lock_guard lock(group.context->mutex);
      group.context->members[member].qps.erase(real->qp_num, &group.counters);
    }
    if (stock->destroy_qp(real) != 0) {
      SHIFT_WARN_LIMITED("qp 0x%x: its QP on %s could not be destroyed", group.qpn(),
                         group.context->name(member));
    }
  }
}

}  // namespace shift::group
