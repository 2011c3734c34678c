#include "measured.h"

#include <cerrno>

namespace {

// Runs one batch after the other; `build` adds one WR to the open batch.
template <typename Build>
[[gnu::always_inline]] inline int build_batches(const BuilderArgs* args, int count, int batch,
                                                Build build) {
  ibv_qp_ex* qp = args->qp;
  int error = 0;
  for (int i = 0; i < count; i += batch) {
    ibv_wr_start(qp);
    for (int j = i; j < i + batch; j++) {
      qp->wr_id = static_cast<uint64_t>(j);
      qp->wr_flags = j + 1 == count ? IBV_SEND_SIGNALED : 0;
      build(qp);
    }
    error |= ibv_wr_complete(qp);
  }
  return error;
}

}  // namespace

extern "C" {

[[gnu::noinline]] int measured_post_send(ibv_qp* qp, ibv_send_wr* wrs, int count, int batch) {
  ibv_send_wr* bad;
  int error = 0;
  for (int i = 0; i < count; i += batch) error |= ibv_post_send(qp, &wrs[i], &bad);
  return error;
}

[[gnu::noinline]] int measured_post_recv(ibv_qp* qp, ibv_recv_wr* wrs, int count, int batch) {
  ibv_recv_wr* bad;
  int error = 0;
  for (int i = 0; i < count; i += batch) error |= ibv_post_recv(qp, &wrs[i], &bad);
  return error;
}

[[gnu::noinline]] int measured_poll_cq(ibv_cq* cq, ibv_wc* wcs, int count, int batch) {
  int got = 0;
  for (int i = 0; i < count; i += batch) got += ibv_poll_cq(cq, batch, wcs);
  return got;
}

[[gnu::noinline]] int measured_start_poll(ibv_cq_ex* cq, ibv_wc* wcs, int count, int batch) {
  int got = 0;
  for (int i = 0; i < count; i += batch) {
    ibv_poll_cq_attr attr{};
    if (ibv_start_poll(cq, &attr) != 0) continue;
    int in_batch = 0;
    do {
      wcs[in_batch].wr_id = cq->wr_id;
      wcs[in_batch].status = cq->status;
      wcs[in_batch].opcode = ibv_wc_read_opcode(cq);
      wcs[in_batch].byte_len = ibv_wc_read_byte_len(cq);
      wcs[in_batch].qp_num = ibv_wc_read_qp_num(cq);
    } while (++in_batch < batch && ibv_next_poll(cq) == 0);
    ibv_end_poll(cq);
    got += in_batch;
  }
  return got;
}

[[gnu::noinline]] int measured_wr_write(const BuilderArgs* args, int count, int batch) {
  return build_batches(args, count, batch, [args](ibv_qp_ex* qp) {
    ibv_wr_rdma_write(qp, args->rkey, args->remote);
    ibv_wr_set_sge(qp, args->lkey, args->local, args->length);
  });
}

[[gnu::noinline]] int measured_wr_write_inline(const BuilderArgs* args, int count, int batch) {
  return build_batches(args, count, batch, [args](ibv_qp_ex* qp) {
    ibv_wr_rdma_write(qp, args->rkey, args->remote);
    ibv_wr_set_inline_data(qp, reinterpret_cast<void*>(args->local), args->length);
  });
}

[[gnu::noinline]] int measured_wr_send(const BuilderArgs* args, int count, int batch) {
  return build_batches(args, count, batch, [args](ibv_qp_ex* qp) {
    ibv_wr_send(qp);
    ibv_wr_set_sge(qp, args->lkey, args->local, args->length);
  });
}

}  // extern "C"
