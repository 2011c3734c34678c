// The twins of the application's objects on the further members of its device group. They are made
// on the worker thread, so that no verb of the application waits for them; the worker's queue is
// first in, first out. What the application destroys it takes down itself, when the worker has
// nothing left to do for it.
#pragma once

namespace shift::group {

struct CompletionQueue;
struct Group;
struct MemoryRegion;
struct ProtectionDomain;

void twin_cqs_create(CompletionQueue& cq);
void twin_cqs_destroy(CompletionQueue& cq);
// Destroys the default's CQ and the twins. Errno of the default's, and then none is destroyed.
int real_cqs_destroy(CompletionQueue& cq);
// Of a region that is deregistered meanwhile, those that are not begun are not made.
void twin_regions_register(MemoryRegion& region, ProtectionDomain& pd);
// From here on no registration begins; the region is on no list any more. True: one is under way.
bool twin_regions_stop(MemoryRegion& region);
void twin_regions_deregister(MemoryRegion& region);
// Destroys the QPs of all members but the default; member_qp.h makes them.
void twin_qps_destroy(Group& group);

}  // namespace shift::group
