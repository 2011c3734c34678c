// The other side of the hot path: first use, shared queues, switching, backup, failed.
#pragma once

#include "group/objects.h"

namespace shift::ops {

[[gnu::cold, gnu::noinline]] int post_send_slow(group::Group& group, ibv_send_wr* wr,
                                                ibv_send_wr** bad_wr);
[[gnu::cold, gnu::noinline]] int post_recv_slow(group::Group& group, ibv_recv_wr* wr,
                                                ibv_recv_wr** bad_wr);
// The provider beneath refused a WR: a full queue and bad arguments are the application's.
[[gnu::cold, gnu::noinline]] int post_send_failed(group::Group& group, int error);

// The builder interface when the hot path is barred: start_slow leaves the send mutex locked until
// complete_slow, as a provider's own builder locks its queue.
[[gnu::cold, gnu::noinline]] void start_slow(group::Group& group);
[[gnu::cold, gnu::noinline]] int complete_slow(group::Group& group);

}  // namespace shift::ops
