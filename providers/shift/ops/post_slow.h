// The other side of the hot path: first use, shared queues, switching, backup, failed.
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
// Journals what the default's NIC has in its queue of a chain that it refused from `bad` on. True:
// all of it, and the application is told so.
//
// Soft-RoCE puts requests into its ring before its doorbell, a write(2), can fail, and then names
// none as bad: its kernel may find and execute them. A program that is told of it posts them again,
// so what is protected is taken: journalled, and the fault masked. Nothing replays the others'.
[[gnu::cold, gnu::noinline]] bool journal_queued(group::Group& group, const ibv_send_wr* wr,
                                                 const ibv_send_wr* bad, int error);
// A doorbell failed with `error`. True: what it was for is the layer's from here on.
[[gnu::cold, gnu::noinline]] bool takes_over(group::Group& group, int error);
// The provider beneath refused a WR: a full queue and bad arguments are the application's.
[[gnu::cold, gnu::noinline]] int post_send_failed(group::Group& group, int error);

// The builder interface when the hot path is barred: start_slow leaves the send mutex locked until
// complete_slow, as a provider's own builder locks its queue.
[[gnu::cold, gnu::noinline]] void start_slow(group::Group& group);
[[gnu::cold, gnu::noinline]] int complete_slow(group::Group& group);

}  // namespace shift::ops
