// The twins of the application's objects on the further members of the device group. The command
// thread of each NIC makes and destroys them, in the order in which it is asked to, so that no verb
// of the application waits for them.
#pragma once

#include <cstdint>
#include <memory>

#include "group/command_threads.h"
#include "group/device.h"

namespace shift::group {

struct CompletionQueue;
struct Group;
struct MemoryRegion;
struct ProtectionDomain;

// On the NIC's command thread: makes the member's CQ if there is none, as the default's is now.
void twin_cq_ensure(CompletionQueue& cq, int member);

// Each of these asks the command threads of all further members, and does not wait for them.
void twin_cqs_create(CompletionQueue& cq);
void twin_cqs_destroy(CompletionQueue& cq);
// Registers the region as it is now, on the members that were wanted for its domain. If it is
// deregistered or changed meanwhile, registrations that have not begun do not begin.
void twin_regions_register(const std::shared_ptr<MemoryRegion>& region, ProtectionDomain& pd);
// From here on, regions of the domain, or of all domains whose memory the group may use, are
// registered on the member, too: those that there are, and those that are made later. What the
// command thread is asked to do after this call comes after those that there are. It does no harm
// to call it again.
void twin_regions_want(ProtectionDomain& pd, int member);
void twin_regions_want(Group& group, int member);
// Whether regions that there were then are still being registered, for the group, with NICs that
// answer.
bool twin_regions_catch_up(Group& group);
// Takes the QPs of all members but the default out of the lists, and has them destroyed;
// member_qp.h makes them.
void twin_qps_destroy(Group& group);

// Has the registrations of the further members ended. Waits for those of members whose twins have
// been in use, unless the NIC is late.
void twin_regions_deregister(const std::shared_ptr<MemoryRegion>& region);
// Has them ended because the region is changed; from here on, a request that needs the region's
// keys on a further member waits. Waits for all of them, unless a NIC is late.
void twin_regions_end(const std::shared_ptr<MemoryRegion>& region);

// Has the default's real object destroyed by `destroy`, which returns an errno and holds what it
// uses. The application's thread does this itself, as with stock, unless the NIC is late, or its
// command thread has tasks for the object (`has_tasks`), or for another one that was destroyed
// before: these come first. If the NIC is late, nothing is waited for, and the result is 0.
template <typename Destroy>
int default_destroy(Context& context, bool has_tasks, Destroy destroy) {
  auto& deferred = context.members[kDefault].deferred;
  const bool late = is_late(context, kDefault);
  if (!has_tasks && !late && deferred == 0) return destroy();
  const auto error = std::make_shared<int>(0);
  ++deferred;
  const auto task = [held = Held(&context), error, destroy] {
    *error = destroy();
    --held->members[kDefault].deferred;
  };
  using Waited = CommandThreads::Waited;
  const Waited waited = !late                             ? on_nic_and_wait(context, kDefault, task)
                        : on_nic(context, kDefault, task) ? Waited::kLate
                                                          : Waited::kNever;
  if (waited == Waited::kDone) return *error;
  if (waited == Waited::kLate) return 0;
  --deferred;
  return destroy();
}

}  // namespace shift::group
