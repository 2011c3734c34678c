// The contexts that are open, and what is asked about them and their QPs from outside.
#include "ops/open_contexts.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "ops/entry.h"
#include "ops/queue_pairs.h"

namespace shift::ops {
namespace {

using group::Context;
using group::Group;
using group::kDefault;

// Never destroyed: programs close their devices in exit handlers, too.
struct OpenContexts {
  std::mutex mutex;
  std::vector<Context*> all;
};
OpenContexts& open_contexts() {
  static auto* const contexts = new OpenContexts;
  return *contexts;
}

// Under its mutex. The address may be that of a QP that is gone: it is compared, no more.
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
  // The first keeps its groups from being destroyed. The other is not to be held while a group's
  // own are taken.
  std::lock_guard alive(context.event_mutex);
  std::vector<Group*> groups;
  {
    std::lock_guard list(context.mutex);
    groups = context.groups;
  }
  return std::ranges::any_of(groups, [](Group* g) { return is_masked(*g); });
}

bool device_is_masked(ibv_context* context) noexcept {
  std::lock_guard lock(open_contexts().mutex);
  return std::ranges::any_of(open_contexts().all, [context](Context* other) {
    return other->device == Context::from(context)->device && context_is_masked(*other);
  });
}

bool is_protected(const ibv_qp* qp) noexcept {
  std::lock_guard lock(open_contexts().mutex);
  return std::ranges::any_of(open_contexts().all, [qp](Context* context) {
    std::lock_guard alive(context->event_mutex);  // as above
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
