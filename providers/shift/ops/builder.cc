// The builder interface, ibv_wr_*. While the default path is healthy, each call fills in a journal
// entry and is forwarded to the real QP's builder. Otherwise a call only fills in an entry of the
// slow batch, and wr_complete treats the requests as ibv_post_send would.
#include "ops/builder.h"

#include <cerrno>
#include <cstring>

#include "group/group.h"
#include "ops/post_slow.h"

namespace shift::ops {
namespace {

using group::Bias;
using group::Group;
using group::Route;
using group::SendEntry;
using group::SendJournal;
using group::ThreadSlot;

Group& group_of(ibv_qp_ex* qp) {
  return *reinterpret_cast<Group*>(qp);
}
ibv_qp_ex* real_of(Group& g) {
  return g.real_ex;
}

void start(ibv_qp_ex* qp) {
  Group& g = group_of(qp);
  ThreadSlot* self = group::tls_slot;
  if (g.send.bias.enter_building(self, &g.send)) [[likely]] {
    g.send.build.fast = true;
    g.send.build.pending = 0;
    g.send.build.error = 0;
    return real_of(g)->wr_start(real_of(g));
  }
  start_slow(g);
}

void start_aside(ibv_qp_ex* qp) {
  start_slow(group_of(qp));
}

// Each function below has two instances: `hot` is SendQueue::build.fast, which one() looks at.

template <bool hot>
SendJournal& entries_of(Group& g) {
  if constexpr (hot) {
    return g.send.journal;
  } else {
    return g.send.slow_batch.entries;
  }
}

// Opens the entry of the next WR. When the journal has no room left, the last slot is used again
// and again, and the whole batch fails.
template <bool hot>
SendEntry& open_entry(ibv_qp_ex* qp, ibv_wr_opcode opcode) {
  Group& g = group_of(qp);
  auto& build = g.send.build;
  if (build.pending >= g.send.journal.depth()) [[unlikely]] {
    build.error = ENOMEM;
    build.pending--;
  }
  SendEntry& entry = entries_of<hot>(g).slot(build.pending++);
  const uint64_t wr_id = qp->wr_id;
  const unsigned flags = qp->wr_flags;
  if constexpr (hot) {
    real_of(g)->wr_id = wr_id;
    real_of(g)->wr_flags = flags;
  }
  entry.wr_id = wr_id;
  entry.opcode = opcode;
  entry.send_flags = flags & ~unsigned{IBV_SEND_INLINE};  // the inline calls set it
  entry.num_sge = 0;
  return entry;
}

template <bool hot>
void rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  SendEntry& entry = open_entry<hot>(qp, IBV_WR_RDMA_WRITE);
  entry.rkey = rkey;
  entry.remote_addr = remote_addr;
  ibv_qp_ex* real = real_of(group_of(qp));
  if constexpr (hot) real->wr_rdma_write(real, rkey, remote_addr);
}

template <bool hot>
void rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, __be32 imm) {
  SendEntry& entry = open_entry<hot>(qp, IBV_WR_RDMA_WRITE_WITH_IMM);
  entry.rkey = rkey;
  entry.remote_addr = remote_addr;
  entry.imm_or_rkey = imm;
  ibv_qp_ex* real = real_of(group_of(qp));
  if constexpr (hot) real->wr_rdma_write_imm(real, rkey, remote_addr, imm);
}

template <bool hot>
void rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr) {
  SendEntry& entry = open_entry<hot>(qp, IBV_WR_RDMA_READ);
  entry.rkey = rkey;
  entry.remote_addr = remote_addr;
  ibv_qp_ex* real = real_of(group_of(qp));
  if constexpr (hot) real->wr_rdma_read(real, rkey, remote_addr);
}

template <bool hot>
void send_plain(ibv_qp_ex* qp) {
  open_entry<hot>(qp, IBV_WR_SEND);
  ibv_qp_ex* real = real_of(group_of(qp));
  if constexpr (hot) real->wr_send(real);
}

template <bool hot>
void send_imm(ibv_qp_ex* qp, __be32 imm) {
  open_entry<hot>(qp, IBV_WR_SEND_WITH_IMM).imm_or_rkey = imm;
  ibv_qp_ex* real = real_of(group_of(qp));
  if constexpr (hot) real->wr_send_imm(real, imm);
}

template <bool hot>
void send_inv(ibv_qp_ex* qp, uint32_t rkey) {
  open_entry<hot>(qp, IBV_WR_SEND_WITH_INV).imm_or_rkey = rkey;
  ibv_qp_ex* real = real_of(group_of(qp));
  if constexpr (hot) real->wr_send_inv(real, rkey);
}

template <bool hot>
void local_inv(ibv_qp_ex* qp, uint32_t rkey) {
  open_entry<hot>(qp, IBV_WR_LOCAL_INV).imm_or_rkey = rkey;
  ibv_qp_ex* real = real_of(group_of(qp));
  if constexpr (hot) real->wr_local_inv(real, rkey);
}

template <bool hot>
void bind_mw_in_batch(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  open_entry<hot>(qp, IBV_WR_BIND_MW);
  Group& g = group_of(qp);
  entries_of<hot>(g).keep_bind(g.send.build.pending - 1, mw, rkey, *info);
  ibv_qp_ex* real = real_of(g);
  if constexpr (hot) real->wr_bind_mw(real, mw, rkey, info);
}

// Keeps an atomic's operands in the extension of its journal entry, where rebuild() finds them.
template <bool hot>
void keep_atomic(ibv_qp_ex* qp, SendEntry& entry, uint32_t rkey, uint64_t remote_addr,
                 uint64_t compare_add, uint64_t swap) {
  Group& g = group_of(qp);
  entry.rkey = rkey;
  entry.remote_addr = remote_addr;
  entries_of<hot>(g).keep_atomic(g.send.build.pending - 1, compare_add, swap);
}

template <bool hot>
void atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t compare,
                    uint64_t swap) {
  SendEntry& entry = open_entry<hot>(qp, IBV_WR_ATOMIC_CMP_AND_SWP);
  keep_atomic<hot>(qp, entry, rkey, remote_addr, compare, swap);
  ibv_qp_ex* real = real_of(group_of(qp));
  if constexpr (hot) real->wr_atomic_cmp_swp(real, rkey, remote_addr, compare, swap);
}

template <bool hot>
void atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr, uint64_t add) {
  SendEntry& entry = open_entry<hot>(qp, IBV_WR_ATOMIC_FETCH_AND_ADD);
  keep_atomic<hot>(qp, entry, rkey, remote_addr, add, 0);
  ibv_qp_ex* real = real_of(group_of(qp));
  if constexpr (hot) real->wr_atomic_fetch_add(real, rkey, remote_addr, add);
}

template <bool hot>
SendEntry& last_entry(Group& g) {
  return entries_of<hot>(g).slot(g.send.build.pending - 1);
}
template <bool hot>
uint8_t* last_extension(Group& g) {
  SendJournal& entries = entries_of<hot>(g);
  return entries.extension(entries.head() + g.send.build.pending - 1);
}

template <bool hot>
void set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t addr, uint32_t length) {
  Group& g = group_of(qp);
  SendEntry& entry = last_entry<hot>(g);
  entry.num_sge = 1;
  entry.sge = {addr, length, lkey};
  if constexpr (hot) real_of(g)->wr_set_sge(real_of(g), lkey, addr, length);
}

template <bool hot>
void set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  Group& g = group_of(qp);
  SendEntry& entry = last_entry<hot>(g);
  if (count <= g.cap.max_send_sge) {
    entry.num_sge = static_cast<int32_t>(count);
    if (count > 0) {  // without elements the list may be null
      entry.sge = list[0];
      std::memcpy(last_extension<hot>(g), list, sizeof(ibv_sge) * count);
    }
  } else {
    g.send.build.error = ENOMEM;
  }
  if constexpr (hot) real_of(g)->wr_set_sge_list(real_of(g), count, list);
}

// On the fast side the NIC's own builder refuses data that is too long; on the slow side only this
// check does.
template <bool hot>
void check_inline(Group& g) {
  if (last_entry<hot>(g).inline_length > g.cap.max_inline_data) g.send.build.error = ENOMEM;
}

template <bool hot>
void keep_inline(Group& g, const ibv_data_buf* buffers, size_t count) {
  SendEntry& entry = last_entry<hot>(g);
  entry.send_flags |= IBV_SEND_INLINE;
  entry.inline_length = 0;
  for (size_t i = 0; i < count; i++) {
    if (buffers[i].length > g.send.journal.extension_size() - entry.inline_length) {
      g.send.build.error = ENOMEM;
      return;
    }
    std::memcpy(last_extension<hot>(g) + entry.inline_length, buffers[i].addr, buffers[i].length);
    entry.inline_length += static_cast<uint32_t>(buffers[i].length);
  }
}

template <bool hot>
void set_inline_data(ibv_qp_ex* qp, void* addr, size_t length) {
  Group& g = group_of(qp);
  if (length <= g.send.journal.extension_size()) [[likely]] {
    SendEntry& entry = last_entry<hot>(g);
    entry.send_flags |= IBV_SEND_INLINE;
    entry.inline_length = static_cast<uint32_t>(length);
    std::memcpy(last_extension<hot>(g), addr, length);
  } else {
    g.send.build.error = ENOMEM;
  }
  if constexpr (hot) {
    real_of(g)->wr_set_inline_data(real_of(g), addr, length);
  } else {
    check_inline<hot>(g);
  }
}

template <bool hot>
void set_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* buffers) {
  Group& g = group_of(qp);
  keep_inline<hot>(g, buffers, count);
  if constexpr (hot) {
    real_of(g)->wr_set_inline_data_list(real_of(g), count, buffers);
  } else {
    check_inline<hot>(g);
  }
}

// The NIC's builder has returned an error. A batch that it refused is not in the NIC's queue, but a
// batch whose doorbell failed is. Leaves the hot section.
[[gnu::cold, gnu::noinline]] int complete_failed(Group& g, int error) {
  const bool taken = takes_over(g, error);
  if (taken) g.send.journal.append_batch<true>(g.send.build.pending);
  Bias::leave_building(group::tls_slot);
  const int shown = post_send_failed(g, error);
  return taken ? 0 : shown;
}

// `exact` means what it means in ops/post.cc.
template <bool exact>
int complete(ibv_qp_ex* qp) {
  Group& g = group_of(qp);
  auto& build = g.send.build;
  if (!build.fast) [[unlikely]]
    return complete_slow(g);
  const int error = real_of(g)->wr_complete(real_of(g));
  if (error != 0) [[unlikely]]
    return complete_failed(g, error);
  g.send.journal.append_batch<exact>(build.pending);
  Bias::leave_building(group::tls_slot);
  return 0;
}

void abort_batch(ibv_qp_ex* qp) {
  Group& g = group_of(qp);
  if (!g.send.build.fast) return abort_slow(g);
  real_of(g)->wr_abort(real_of(g));
  Bias::leave_building(group::tls_slot);
}

// This function is apart from one(), so that it does not grow the hot one.
template <auto slow, typename... Args>
[[gnu::cold, gnu::noinline]] void not_hot(ibv_qp_ex* qp, Args... args) {
  slow(qp, args...);
}

template <auto hot, auto slow, typename... Args>
void one(ibv_qp_ex* qp, Args... args) {
  if (!group_of(qp).send.build.fast) [[unlikely]]
    return not_hot<slow>(qp, args...);
  hot(qp, args...);
}

}  // namespace

void install_builder(Group& g) {
  const uint32_t half = (g.cap.max_send_wr + 1) / 2;  // a journal has twice the slots
  g.send.slow_batch.entries.init(half, g.cap.max_send_sge, g.cap.max_inline_data, g.sq_sig_all);
  ibv_qp_ex& qp = g.qp;
  const ibv_qp_ex& real = *real_of(g);
  qp.comp_mask = 0;
  qp.wr_start = start;
  qp.wr_complete = g.exact ? complete<true> : complete<false>;
  qp.wr_abort = abort_batch;
  // The application gets only the calls that the NIC's QP was created for.
  if (real.wr_rdma_write != nullptr) qp.wr_rdma_write = one<rdma_write<true>, rdma_write<false>>;
  if (real.wr_rdma_write_imm != nullptr)
    qp.wr_rdma_write_imm = one<rdma_write_imm<true>, rdma_write_imm<false>>;
  if (real.wr_rdma_read != nullptr) qp.wr_rdma_read = one<rdma_read<true>, rdma_read<false>>;
  if (real.wr_send != nullptr) qp.wr_send = one<send_plain<true>, send_plain<false>>;
  if (real.wr_send_imm != nullptr) qp.wr_send_imm = one<send_imm<true>, send_imm<false>>;
  if (real.wr_send_inv != nullptr) qp.wr_send_inv = one<send_inv<true>, send_inv<false>>;
  if (real.wr_local_inv != nullptr) qp.wr_local_inv = one<local_inv<true>, local_inv<false>>;
  if (real.wr_bind_mw != nullptr)
    qp.wr_bind_mw = one<bind_mw_in_batch<true>, bind_mw_in_batch<false>>;
  if (real.wr_atomic_cmp_swp != nullptr)
    qp.wr_atomic_cmp_swp = one<atomic_cmp_swp<true>, atomic_cmp_swp<false>>;
  if (real.wr_atomic_fetch_add != nullptr)
    qp.wr_atomic_fetch_add = one<atomic_fetch_add<true>, atomic_fetch_add<false>>;
  qp.wr_set_sge = one<set_sge<true>, set_sge<false>>;
  qp.wr_set_sge_list = one<set_sge_list<true>, set_sge_list<false>>;
  qp.wr_set_inline_data = one<set_inline_data<true>, set_inline_data<false>>;
  qp.wr_set_inline_data_list = one<set_inline_data_list<true>, set_inline_data_list<false>>;
}

void build_aside(Group& g, bool aside) {
  if (g.real_ex != nullptr) g.qp.wr_start = aside ? start_aside : start;
}

}  // namespace shift::ops
