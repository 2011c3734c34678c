#include "ops/deputy.h"

#include <cerrno>
#include <memory>
#include <mutex>

#include "group/command_threads.h"
#include "group/port.h"
#include "ops/entry.h"
#include "ops/nic_open.h"
#include "util/config.h"
#include "util/log.h"

namespace shift::ops {

using group::Context;
using group::kDefault;

namespace {

// A default member that could not be opened at all is a deputy itself, which is used here, too.
ibv_context* other_open(Context& context) {
  context.deputy.member = kDefault;
  if (context.members[kDefault].is_deputy) return context.members[kDefault].real;
  for (int member = kDefault + 1; member < context.member_count; member++) {
    if (context.members[member].dead) continue;
    const auto nic = further_open(context.device->dev.name, context.members[member].real->device);
    if (nic == nullptr) continue;
    if (nic->watch != nullptr) (void)stock->destroy_comp_channel(nic->watch);
    context.deputy.member = member;
    return nic->real;
  }
  errno = EIO;
  return nullptr;
}

}  // namespace

bool is_default_gone(const Context& context, int error) {
  return (error == EIO || error == ENODEV) && !group::member_port_is_up(context, kDefault);
}

const Context::Deputy* deputy_of(Context& context) {
  if (!config().born_masked) {
    errno = EIO;
    return nullptr;
  }
  Context::Deputy& one = context.deputy;
  std::lock_guard lock(one.mutex);
  if (one.cq != nullptr) return &one;
  if (one.real == nullptr) one.real = other_open(context);
  if (one.real == nullptr) return nullptr;
  if (one.pd == nullptr) one.pd = stock->alloc_pd(one.real);
  if (one.pd == nullptr) return nullptr;
  one.cq = stock->create_cq(one.real, 1, nullptr, nullptr, 0);
  if (one.cq == nullptr) return nullptr;
  SHIFT_INFO_FEW("%s is dead: what is made from now on lives on other NICs",
                 context.device->dev.name);
  return &one;
}

Home home(Context& context) {
  if (!needs_deputy(context)) return {context.members[kDefault].real, false};
  const Context::Deputy* one = deputy_of(context);
  return {one != nullptr ? one->real : nullptr, true};
}

namespace {

void close(Context& context) {
  Context::Deputy& one = context.deputy;
  if (one.cq != nullptr) (void)stock->destroy_cq(one.cq);
  if (one.pd != nullptr) (void)stock->dealloc_pd(one.pd);
  if (!context.members[kDefault].is_deputy) (void)stock->close_device(one.real);
}

}  // namespace

void deputy_close(Context& context) {
  if (context.deputy.real == nullptr) return;
  const auto run = [held = group::Held(&context)] { close(*held); };
  const auto waited = group::on_nic_and_wait(context, context.deputy.member, run);
  if (waited == group::CommandThreads::Waited::kNever) run();
}

}  // namespace shift::ops
