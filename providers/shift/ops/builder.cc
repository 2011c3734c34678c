// The builder interface, ibv_wr_*. While the default path is healthy, each call fills in a journal
// entry and is forwarded to the real QP's builder. Otherwise a call only fills in an entry of the
// slow batch, and wr_complete treats the requests as ibv_post_send would.
#include "ops/builder.h"

#include <cerrno>
#include <cstring>

#include "group/group.h"
#include "ops/post_slow.h"
#include "util/planted.h"

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

// Puts the calls for a hot batch, or for a slow one, into the QP's table. No batch is open, or the
// caller is its owner.
void calls_set(Group& g, bool hot);

[[gnu::cold, gnu::noinline]] void start_slowly(Group& g) {
  start_slow(g);
  calls_set(g, false);
}

// `counted`, here and below: packets are counted.
template <bool counted>
void start(ibv_qp_ex* qp) {
  Group& g = group_of(qp);
  ThreadSlot* self = group::tls_slot;
  if (g.send.bias.enter_building(self, &g.send)) [[likely]] {
    g.send.build.fast = true;
    g.send.build.pending = 0;
    g.send.build.signaled = g.send.build.notifications = 0;
    if constexpr (counted) g.send.build.packets = 0;
    g.send.build.error = 0;
    return real_of(g)->wr_start(real_of(g));
  }
  start_slowly(g);
}

auto start_of(const Group& g) {
  return g.asks_responder() ? start<true> : start<false>;
}

void start_aside(ibv_qp_ex* qp) {
  start_slowly(group_of(qp));
}

// Each function below has two instances: `hot` is SendQueue::build.fast.

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
  auto& journal = g.send.journal;
  if (taken && journal.is_noting()) {
    const auto& build = g.send.build;
    journal.take_packets(build.packets);
    journal.take_notes(build.pending, build.signaled, build.notifications);
  } else if (taken) {
    journal.append_batch<true>(g.send.build.pending);
  }
  Bias::leave_building(group::tls_slot);
  const int shown = post_send_failed(g, error);
  return taken ? 0 : shown;
}

// What the journal keeps of the batch, as in ops/post.cc.
enum class Keep : uint8_t { kEntries, kEntriesAndPackets, kNotes, kNotesAndPackets };

template <Keep keep>
int complete(ibv_qp_ex* qp) {
  Group& g = group_of(qp);
  auto& build = g.send.build;
  if (!build.fast) [[unlikely]]
    return complete_slow(g);
  const int error = real_of(g)->wr_complete(real_of(g));
  if (error != 0) [[unlikely]]
    return complete_failed(g, error);
  if constexpr (keep == Keep::kNotesAndPackets) g.send.journal.take_packets(build.packets);
  if constexpr (keep == Keep::kNotes || keep == Keep::kNotesAndPackets) {
    g.send.journal.take_notes(build.pending, build.signaled, build.notifications);
  } else {
    g.send.journal.append_batch<keep == Keep::kEntriesAndPackets>(build.pending);
  }
  Bias::leave_building(group::tls_slot);
  return 0;
}

void abort_batch(ibv_qp_ex* qp) {
  Group& g = group_of(qp);
  if (!g.send.build.fast) return abort_slow(g);
  real_of(g)->wr_abort(real_of(g));
  Bias::leave_building(group::tls_slot);
}

// ---- the hot way with notes: the NIC's queue holds the rest, so calls only pass through

template <auto call, typename... Args>
void pass(ibv_qp_ex* qp, Args... args) {
  ibv_qp_ex* const real = real_of(group_of(qp));
  (real->*call)(real, args...);
}

template <bool counted, auto call, ibv_wr_opcode opcode, typename... Args>
void note(ibv_qp_ex* qp, Args... args) {
  Group& g = group_of(qp);
  auto& build = g.send.build;
  if (build.pending >= g.send.journal.depth()) [[unlikely]]
    build.pending--;  // the NIC's own builder fails the batch
  const uint64_t wr_id = qp->wr_id;
  const unsigned flags = qp->wr_flags;
  g.send.journal.note_slot(build.pending) = {wr_id, opcode, flags};
  build.pending++;
  add_bit(build.signaled, flags, 1);
  if constexpr (group::is_notification(opcode)) build.notifications++;
  if constexpr (counted && opcode != IBV_WR_LOCAL_INV && opcode != IBV_WR_BIND_MW) {
    build.packets++;
    // The data of an atomic, whatever the program says, adds no packet.
    build.shift = group::is_atomic(opcode) ? 63 : g.send.journal.mtu_shift();
  }
  ibv_qp_ex* const real = real_of(g);
  real->wr_id = wr_id;
  real->wr_flags = flags;
  (real->*call)(real, args...);
}

// Counts the further packets of the newest request, whose data is so long.
void count_data(Group& g, uint64_t length) {
  if (SHIFT_PLANT(built_data_uncounted)) return;
  auto& build = g.send.build;
  build.packets += static_cast<uint32_t>(SendJournal::packets_further(length, build.shift));
}

void pass_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t addr, uint32_t length) {
  Group& g = group_of(qp);
  count_data(g, length);
  real_of(g)->wr_set_sge(real_of(g), lkey, addr, length);
}

void pass_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  Group& g = group_of(qp);
  uint64_t length = 0;
  for (size_t i = 0; i < count; i++) length += list[i].length;
  count_data(g, length);
  real_of(g)->wr_set_sge_list(real_of(g), count, list);
}

void pass_inline_data(ibv_qp_ex* qp, void* addr, size_t length) {
  Group& g = group_of(qp);
  count_data(g, length);
  real_of(g)->wr_set_inline_data(real_of(g), addr, length);
}

void pass_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* buffers) {
  Group& g = group_of(qp);
  uint64_t length = 0;
  for (size_t i = 0; i < count; i++) length += buffers[i].length;
  count_data(g, length);
  real_of(g)->wr_set_inline_data_list(real_of(g), count, buffers);
}

template <bool counted>
void calls_noted(Group& g) {
  ibv_qp_ex& qp = g.qp;
#define SHIFT_NOTE(call, opcode) \
  if (real_of(g)->call != nullptr) qp.call = note<counted, &ibv_qp_ex::call, opcode>
  SHIFT_NOTE(wr_rdma_write, IBV_WR_RDMA_WRITE);
  SHIFT_NOTE(wr_rdma_write_imm, IBV_WR_RDMA_WRITE_WITH_IMM);
  SHIFT_NOTE(wr_rdma_read, IBV_WR_RDMA_READ);
  SHIFT_NOTE(wr_send, IBV_WR_SEND);
  SHIFT_NOTE(wr_send_imm, IBV_WR_SEND_WITH_IMM);
  SHIFT_NOTE(wr_send_inv, IBV_WR_SEND_WITH_INV);
  SHIFT_NOTE(wr_local_inv, IBV_WR_LOCAL_INV);
  SHIFT_NOTE(wr_bind_mw, IBV_WR_BIND_MW);
  SHIFT_NOTE(wr_atomic_cmp_swp, IBV_WR_ATOMIC_CMP_AND_SWP);
  SHIFT_NOTE(wr_atomic_fetch_add, IBV_WR_ATOMIC_FETCH_AND_ADD);
#undef SHIFT_NOTE
  if constexpr (counted) {
    qp.wr_complete = complete<Keep::kNotesAndPackets>;
    qp.wr_set_sge = pass_sge;
    qp.wr_set_sge_list = pass_sge_list;
    qp.wr_set_inline_data = pass_inline_data;
    qp.wr_set_inline_data_list = pass_inline_data_list;
  } else {
    qp.wr_complete = complete<Keep::kNotes>;
    qp.wr_set_sge = pass<&ibv_qp_ex::wr_set_sge>;
    qp.wr_set_sge_list = pass<&ibv_qp_ex::wr_set_sge_list>;
    qp.wr_set_inline_data = pass<&ibv_qp_ex::wr_set_inline_data>;
    qp.wr_set_inline_data_list = pass<&ibv_qp_ex::wr_set_inline_data_list>;
  }
}

template <bool hot>
void calls_by_entries(Group& g) {
  ibv_qp_ex& qp = g.qp;
  const ibv_qp_ex& real = *real_of(g);
  // The application gets only the calls that the NIC's QP was created for.
  if (real.wr_rdma_write != nullptr) qp.wr_rdma_write = rdma_write<hot>;
  if (real.wr_rdma_write_imm != nullptr) qp.wr_rdma_write_imm = rdma_write_imm<hot>;
  if (real.wr_rdma_read != nullptr) qp.wr_rdma_read = rdma_read<hot>;
  if (real.wr_send != nullptr) qp.wr_send = send_plain<hot>;
  if (real.wr_send_imm != nullptr) qp.wr_send_imm = send_imm<hot>;
  if (real.wr_send_inv != nullptr) qp.wr_send_inv = send_inv<hot>;
  if (real.wr_local_inv != nullptr) qp.wr_local_inv = local_inv<hot>;
  if (real.wr_bind_mw != nullptr) qp.wr_bind_mw = bind_mw_in_batch<hot>;
  if (real.wr_atomic_cmp_swp != nullptr) qp.wr_atomic_cmp_swp = atomic_cmp_swp<hot>;
  if (real.wr_atomic_fetch_add != nullptr) qp.wr_atomic_fetch_add = atomic_fetch_add<hot>;
  qp.wr_set_sge = set_sge<hot>;
  qp.wr_set_sge_list = set_sge_list<hot>;
  qp.wr_set_inline_data = set_inline_data<hot>;
  qp.wr_set_inline_data_list = set_inline_data_list<hot>;
}

void calls_set(Group& g, bool hot) {
  if (!hot) {
    calls_by_entries<false>(g);
  } else if (g.send.journal.may_note()) {
    g.asks_responder() ? calls_noted<true>(g) : calls_noted<false>(g);
  } else {
    calls_by_entries<true>(g);
    g.qp.wr_complete =
        g.asks_responder() ? complete<Keep::kEntriesAndPackets> : complete<Keep::kEntries>;
  }
}

}  // namespace

void install_builder(Group& g) {
  const uint32_t half = (g.cap.max_send_wr + 1) / 2;  // a journal has twice the slots
  g.send.slow_batch.entries.init(half, g.cap.max_send_sge, g.cap.max_inline_data, g.sq_sig_all);
  g.qp.comp_mask = 0;
  g.qp.wr_start = start_of(g);
  g.qp.wr_abort = abort_batch;
  calls_set(g, true);
}

void build_anew(Group& g) {
  calls_set(g, true);
}

void build_aside(Group& g, bool aside) {
  if (g.real_ex != nullptr) g.qp.wr_start = aside ? start_aside : start_of(g);
}

}  // namespace shift::ops
