// The twins of the application's objects on the further members of the device group. The worker
// makes them, so that no verb of the application waits for them; its queue is first in, first out.
// When the application destroys an object and the worker has no job left for it, the application's
// thread destroys the twins.
#pragma once

namespace shift::group {

struct CompletionQueue;
struct Group;
struct MemoryRegion;
struct ProtectionDomain;

void twin_cqs_create(CompletionQueue& cq);
void twin_cqs_destroy(CompletionQueue& cq);
// Destroys the default's CQ and the twins. Returns 0 or the errno for the default's CQ; then no
// twin is destroyed.
int real_cqs_destroy(CompletionQueue& cq);
// Registers the region on the further members. If the region is deregistered meanwhile,
// registrations that have not begun do not begin.
void twin_regions_register(MemoryRegion& region, ProtectionDomain& pd);
// From here on no registration begins; the caller has taken the region off all lists. True: one is
// under way.
bool twin_regions_stop(MemoryRegion& region);
void twin_regions_deregister(MemoryRegion& region);
// Destroys the QPs of all members but the default; member_qp.h makes them.
void twin_qps_destroy(Group& group);

}  // namespace shift::group
