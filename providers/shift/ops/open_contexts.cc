// The contexts that are open, and the carrier's queries about them and their QPs.
#include "ops/open_contexts.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "ops/entry.h"
#include "ops/query_qp.h"

namespace shift::ops {
namespace {

using group::Context;
using group::Group;
using group::kDefault;

// It is never destroyed, because programs close their devices in exit handlers, too.
struct OpenContexts {
  std::mutex mutex;
  std::vector<Context*> all;
};
OpenContexts& open_contexts() {
  static auto* const contexts = new OpenContexts;
  return *contexts;
}

// The caller holds Context::mutex. The address may be that of a destroyed QP, so it is only
// compared and never dereferenced.
Group* group_at(const Context& context, const ibv_qp* qp) {
  const auto found =
      std::ranges::find(context.groups, qp, [](Group* group) { return group->handle(); });
  return found != context.groups.end() ? *found : nullptr;
}

}  // namespace

void context_is_open(Context* context) {
  std::lock_guard lock(open_contexts().mutex);
  open_contexts().all.push_back(context);
}
void context_is_closed(Context* context) {
  std::lock_guard lock(open_contexts().mutex);
  std::erase(open_contexts().all, context);
}

ibv_context* context_above(const ibv_context* real) noexcept {
  std::lock_guard lock(open_contexts().mutex);
  for (Context* context : open_contexts().all) {
    if (context->members[kDefault].real == real) return context->handle();
  }
  return nullptr;
}

bool context_is_masked(Context& context) {
  // event_mutex keeps the context's groups from being destroyed. Context::mutex must not be held
  // while is_masked() locks the mutexes of a group, so it is held only to copy the list.
  std::lock_guard alive(context.event_mutex);
  std::vector<Group*> groups;
  {
    std::lock_guard list(context.mutex);
    groups = context.groups;
  }
  return std::ranges::any_of(groups, [](Group* g) { return is_masked(*g); });
}

bool context_has_unprotected(Context& context) {
  std::lock_guard alive(context.event_mutex);
  std::vector<Group*> groups;
  {
    std::lock_guard list(context.mutex);
    groups = context.groups;
  }
  return std::ranges::any_of(groups, [](Group* g) {
    {
      std::lock_guard lock(g->attr_mutex);
      if (!(g->life.asked.mask & IBV_QP_AV)) return false;
    }
    return !is_masked(*g);
  });
}

bool device_is_masked(ibv_context* context) noexcept {
  std::lock_guard lock(open_contexts().mutex);
  return std::ranges::any_of(open_contexts().all, [context](Context* other) {
    return other->device == Context::from(context)->device && context_is_masked(*other);
  });
}

bool context_uses_number(const group::Device& device, uint32_t qpn) {
  std::lock_guard lock(open_contexts().mutex);
  return std::ranges::any_of(open_contexts().all, [&](Context* context) {
    if (context->device != &device) return false;
    std::lock_guard list(context->mutex);
    return std::ranges::any_of(context->groups, [qpn](Group* g) { return g->qpn() == qpn; });
  });
}

bool is_protected(const ibv_qp* qp) noexcept {
  std::lock_guard lock(open_contexts().mutex);
  return std::ranges::any_of(open_contexts().all, [qp](Context* context) {
    std::lock_guard alive(context->event_mutex);  // keeps the group, as in context_is_masked()
    Group* group = nullptr;
    {
      std::lock_guard list(context->mutex);
      group = group_at(*context, qp);
    }
    return group != nullptr && is_masked(*group);
  });
}

bool has_left(const ibv_qp* qp) noexcept {
  std::lock_guard lock(open_contexts().mutex);
  return std::ranges::any_of(open_contexts().all, [qp](Context* context) {
    std::lock_guard list(context->mutex);
    const Group* group = group_at(*context, qp);
    return group != nullptr && group->life.path.departures != 0;
  });
}

}  // namespace shift::ops
