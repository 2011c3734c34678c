// The measured loops. Each is a separate function with a C name, so that callgrind can be told to
// count inside it and nowhere else. Their results are checked outside.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

extern "C" {

// `wrs` is an array of `count` WRs, chained in batches.
int measured_post_send(ibv_qp* qp, ibv_send_wr* wrs, int count, int batch);
int measured_post_recv(ibv_qp* qp, ibv_recv_wr* wrs, int count, int batch);

// Polls count / batch times for up to `batch` completions; returns how many came.
int measured_poll_cq(ibv_cq* cq, ibv_wc* wcs, int count, int batch);
// Polls in the same way through ibv_start_poll, ibv_next_poll and ibv_end_poll.
int measured_start_poll(ibv_cq_ex* cq, ibv_wc* wcs, int count, int batch);

struct BuilderArgs {
  ibv_qp_ex* qp;
  uint32_t lkey, rkey;
  uint64_t local, remote;
  uint32_t length;
};
// Only the very last WR is signaled.
int measured_wr_write(const BuilderArgs* args, int count, int batch);
int measured_wr_write_inline(const BuilderArgs* args, int count, int batch);
int measured_wr_send(const BuilderArgs* args, int count, int batch);

}  // extern "C"
