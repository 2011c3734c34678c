// Protection domains, parent domains and thread domains.
#include "ops/domains.h"

#include <memory>

#include "group/twins.h"
#include "ops/deputy.h"
#include "ops/entry.h"
#include "ops/tables.h"
#include "util/config.h"

namespace shift::ops {
namespace {

using group::Context;
using group::kDefault;
using group::ProtectionDomain;

// The real parent domain gets allocate() and release() as its allocators. They call the
// application's allocators with the application's handle and context.
void* allocate(ibv_pd*, void* domain, size_t size, size_t alignment, uint64_t resource_type) {
  auto* p = static_cast<ProtectionDomain*>(domain);
  return p->allocators.alloc(&p->pd, p->allocators.pd_context, size, alignment, resource_type);
}
void release(ibv_pd*, void* domain, void* memory, uint64_t resource_type) {
  auto* p = static_cast<ProtectionDomain*>(domain);
  // The application's allocator may belong to an interpreter, for example, which not every thread
  // may call. So a command thread only notes the memory.
  if (group::command_threads->in_thread()) {
    try {
      std::lock_guard lock(p->mutex);
      p->released.push_back({memory, resource_type});
    } catch (const std::bad_alloc&) {  // the memory is lost
    }
    return;
  }
  p->allocators.free(&p->pd, p->allocators.pd_context, memory, resource_type);
}

// Completes the virtual object over `real`, which it owns from here on.
void publish(ProtectionDomain& pd, ibv_context* context, ibv_pd* real) {
  pd.real[kDefault] = real;
  pd.pd = *real;
  pd.pd.context = context;
  pd.context = group::Held(Context::from(context));
}

// Runs `task(pd, member)` on the command threads of all further members, in order with what they
// were asked before.
template <typename Task>
void on_twins(ProtectionDomain& pd, Task task) {
  const Context& context = *Context::from(pd.pd.context);
  for (int member = kDefault + 1; member < context.member_count; member++) {
    (void)group::on_nic(context, member,
                        [held = group::Held(&pd), member, task] { task(*held, member); });
  }
}

}  // namespace

ibv_pd* alloc_pd(ibv_context* context) noexcept {
  Context* c = Context::from(context);
  auto pd = std::unique_ptr<ProtectionDomain>(new (std::nothrow) ProtectionDomain);
  if (pd == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  ibv_pd* real = make_at_home(*c, [](Home at) { return stock->alloc_pd(at.real); });
  if (real == nullptr) return nullptr;
  publish(*pd, context, real);
  if (config().register_on != Config::Register::kAll) pd->registers_on = 0;
  on_twins(*pd, [](ProtectionDomain& made, int member) {
    made.real[member] = stock->alloc_pd(made.context->members[member].real);
  });
  return &pd.release()->pd;
}

int dealloc_pd(ibv_pd* pd) noexcept {
  auto* p = virtual_pd(pd);
  if (p->users != 0) return EBUSY;
  const int error = group::default_destroy(
      *p->context, false, [real = p->real[kDefault]] { return stock->dealloc_pd(real); });
  if (error != 0) return error;
  if (p->base == nullptr) {
    coordinator().later([held = group::Held(p)] {
      on_twins(*held, [](ProtectionDomain& gone, int member) {
        if (gone.real[member] != nullptr) (void)stock->dealloc_pd(gone.real[member]);
      });
    });
  } else {
    p->base->users--;
  }
  group::let_go(p);
  return 0;
}

// On the further members, the domain that the parent domain was made of stands for both. A parent
// domain adds allocators and the promise that one thread alone uses it. Both concern the process's
// memory for the NIC's objects, and only command threads make objects on the further members.
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* init) noexcept {
  constexpr uint32_t kKnown =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (asks_for_newer(init->comp_mask, kKnown)) return nullptr;
  ibv_context* real_context = Context::from(context)->members[kDefault].real;
  const auto* verbs = verbs_get_ctx_op(real_context, alloc_parent_domain);
  if (verbs == nullptr || init->pd == nullptr) {
    errno = verbs == nullptr ? EOPNOTSUPP : EINVAL;
    return nullptr;
  }
  auto pd = std::unique_ptr<ProtectionDomain>(new (std::nothrow) ProtectionDomain);
  if (pd == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  auto* base = virtual_pd(init->pd);
  ibv_parent_domain_init_attr attr = *init;
  attr.pd = base->real[kDefault];
  pd->allocators = *init;
  if (!(init->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)) {
    pd->allocators.pd_context = nullptr;
  }
  if (init->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) {
    attr.comp_mask |= IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.pd_context = pd.get();
    if (init->alloc != nullptr) attr.alloc = allocate;
    if (init->free != nullptr) attr.free = release;
  }
  ibv_pd* real = nullptr;
  if (needs_deputy(*Context::from(context))) {
    // There are no objects on the default NIC that it would allocate for.
    real = make_at_home(*Context::from(context), [](Home at) { return stock->alloc_pd(at.real); });
  } else {
    real = verbs->alloc_parent_domain(real_context, &attr);
  }
  if (real == nullptr) return nullptr;
  publish(*pd, context, real);
  pd->base = base->base != nullptr ? base->base : base;
  pd->base->users++;
  pd->base_held = group::Held(pd->base);
  // This comes after the making of the base domain's twins.
  on_twins(*pd,
           [](ProtectionDomain& made, int member) { made.real[member] = made.base->real[member]; });
  return &pd.release()->pd;
}

// An imported domain is known to another process by its handle, and belongs to one NIC. So objects
// that are made of it have no twins, and stay on that NIC.
ibv_pd* import_pd(ibv_context* context, uint32_t handle) noexcept {
  auto pd = std::unique_ptr<ProtectionDomain>(new (std::nothrow) ProtectionDomain);
  if (pd == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  ibv_pd* real = stock->import_pd(Context::from(context)->members[kDefault].real, handle);
  if (real == nullptr) return nullptr;
  publish(*pd, context, real);
  return &pd.release()->pd;
}

void give_back_released(ProtectionDomain& pd) {
  std::vector<ProtectionDomain::Released> released;
  {
    std::lock_guard lock(pd.mutex);
    released.swap(pd.released);
  }
  for (const auto& one : released) {
    pd.allocators.free(&pd.pd, pd.allocators.pd_context, one.memory, one.resource_type);
  }
}

void unimport_pd(ibv_pd* pd) noexcept {
  auto* p = virtual_pd(pd);
  stock->unimport_pd(p->real[kDefault]);
  group::let_go(p);
}

}  // namespace shift::ops
