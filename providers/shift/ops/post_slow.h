// The slow way of posting: the first use of a queue, queues that several threads share, a switch
// that is under way, traffic on a backup, and failed groups.
#pragma once

#include <infiniband/verbs.h>

namespace shift::group {
struct Group;
}  // namespace shift::group

namespace shift::ops {

[[gnu::cold, gnu::noinline]] int post_send_slow(group::Group& group, ibv_send_wr* wr,
                                                ibv_send_wr** bad_wr);
[[gnu::cold, gnu::noinline]] int post_recv_slow(group::Group& group, ibv_recv_wr* wr,
                                                ibv_recv_wr** bad_wr);
// The default NIC has refused a chain from `bad` on; journals the requests that are in its queue.
// True: the layer has taken over the whole chain, and the application's call returns success.
//
// Soft-RoCE puts requests into its ring before it rings its doorbell, a write(2), which can fail.
// It then names no request as bad, and its kernel may find and execute the requests. A program that
// gets the error posts them again. So the layer takes over the requests of a protected QP: it
// journals them, and masks the fault. It does not do so for other QPs, because nothing would replay
// their requests.
[[gnu::cold, gnu::noinline]] bool journal_queued(group::Group& group, const ibv_send_wr* wr,
                                                 const ibv_send_wr* bad, int error);
// A doorbell has failed with `error`. True: from here on the layer answers for the requests that
// the doorbell was for. The caller is in the queue's hot section or holds its mutex, and holds no
// CQ's mutex.
[[gnu::cold, gnu::noinline]] bool takes_over(group::Group& group, int error);
// The provider beneath has refused a WR. Reports a fault of the default path if the device is gone;
// a full queue and bad arguments are the application's own errors. Returns the errno for the
// application.
[[gnu::cold, gnu::noinline]] int post_send_failed(group::Group& group, int error);

// The builder interface when the hot path is barred. Until complete_slow() or abort_slow(), other
// threads wait in start_slow(), as a provider's own builder locks its queue.
[[gnu::cold, gnu::noinline]] void start_slow(group::Group& group);
[[gnu::cold, gnu::noinline]] int complete_slow(group::Group& group);
[[gnu::cold, gnu::noinline]] void abort_slow(group::Group& group);

}  // namespace shift::ops
