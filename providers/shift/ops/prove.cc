#include "ops/prove.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <vector>

#include "ops/builder.h"
#include "util/log.h"

namespace shift::ops {

using group::Group;

namespace {

// The SGEs that name bytes: a provider leaves out the others.
std::vector<ibv_sge> sges_of(const ibv_sge* list, int count) {
  std::vector<ibv_sge> sges;
  std::copy_if(list, list + count, std::back_inserter(sges),
               [](const ibv_sge& sge) { return sge.length != 0; });
  return sges;
}
// An atomic has eight bytes, whatever the program says.
std::vector<ibv_sge> sges_of(const ibv_send_wr& wr) {
  std::vector<ibv_sge> sges = sges_of(wr.sg_list, wr.num_sge);
  if (!group::is_atomic(wr.opcode)) return sges;
  for (ibv_sge& sge : sges) sge.length = 8;
  return sges;
}

bool are_equal(const std::vector<ibv_sge>& a, const std::vector<ibv_sge>& b) {
  return std::ranges::equal(a, b, [](const ibv_sge& x, const ibv_sge& y) {
    return x.addr == y.addr && x.length == y.length && x.lkey == y.lkey;
  });
}

std::vector<uint8_t> bytes_of(const ibv_send_wr& wr) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < wr.num_sge; i++) {
    const auto* from = reinterpret_cast<const uint8_t*>(wr.sg_list[i].addr);
    bytes.insert(bytes.end(), from, from + wr.sg_list[i].length);
  }
  return bytes;
}

bool are_equal(const ibv_send_wr& asked, const ibv_send_wr& read) {
  if (asked.opcode != read.opcode) return false;
  switch (asked.opcode) {
    case IBV_WR_BIND_MW:
    case IBV_WR_LOCAL_INV:
      return true;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      if (asked.wr.atomic.swap != read.wr.atomic.swap) return false;
      [[fallthrough]];
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      if (asked.wr.atomic.compare_add != read.wr.atomic.compare_add ||
          asked.wr.atomic.remote_addr != read.wr.atomic.remote_addr ||
          asked.wr.atomic.rkey != read.wr.atomic.rkey) {
        return false;
      }
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
      if (asked.wr.rdma.remote_addr != read.wr.rdma.remote_addr ||
          asked.wr.rdma.rkey != read.wr.rdma.rkey) {
        return false;
      }
      break;
    default:
      break;
  }
  const bool has_word = asked.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
                        asked.opcode == IBV_WR_SEND_WITH_IMM ||
                        asked.opcode == IBV_WR_SEND_WITH_INV;
  if (has_word && asked.imm_data != read.imm_data) return false;
  if (asked.send_flags & IBV_SEND_INLINE) {
    const bool is_inline = read.send_flags & IBV_SEND_INLINE || read.num_sge == 0;
    return is_inline && bytes_of(asked) == bytes_of(read);
  }
  return (read.send_flags & IBV_SEND_INLINE) == 0 && are_equal(sges_of(asked), sges_of(read));
}

bool holds(const Group& group, const ibv_send_wr* chain) {
  std::vector<const ibv_send_wr*> posted;
  for (; chain != nullptr; chain = chain->next) posted.push_back(chain);
  const group::RingReader& reader = group.reader;
  uint32_t end = reader.table->sends_end(&reader.rings);
  std::vector<uint8_t> data(group.cap.max_inline_data);
  for (auto wr = posted.rbegin(); wr != posted.rend(); ++wr) {
    ibv_send_wr read;
    ibv_sge sges[group::kMaxSge];
    const SentHint hint{(*wr)->opcode, group.sq_sig_all || (*wr)->send_flags & IBV_SEND_SIGNALED};
    const SentRequest to{&read, sges, group::kMaxSge, data.data(),
                         static_cast<uint32_t>(data.size())};
    const uint32_t blocks = reader.table->send_before(&reader.rings, end, &hint, &to);
    if (blocks == 0 || !are_equal(**wr, read)) return false;
    end -= blocks;
  }
  return true;
}

bool holds(const Group& group, const ibv_recv_wr* chain) {
  std::vector<const ibv_recv_wr*> posted;
  for (; chain != nullptr; chain = chain->next) posted.push_back(chain);
  const group::RingReader& reader = group.reader;
  for (size_t i = 0; i < posted.size(); i++) {
    ibv_recv_wr read;
    ibv_sge sges[group::kMaxSge];
    const auto age = static_cast<uint32_t>(posted.size() - 1 - i);
    const ibv_recv_wr& asked = *posted[i];
    if (!reader.table->receive(&reader.rings, age, &read, sges, group::kMaxSge) ||
        !are_equal(sges_of(asked.sg_list, asked.num_sge), sges_of(sges, read.num_sge))) {
      return false;
    }
  }
  return true;
}

// Without memory for the comparison, nothing is proven.
template <typename Wr>
bool is_right(const Group& group, const Wr* chain) noexcept {
  try {
    return holds(group, chain);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void tell(const Group& group, const char* queue) {
  SHIFT_WARN_LIMITED(
      "qp 0x%x: the NIC's %s queue has a format that the layer does not know; each "
      "request is copied",
      group.qpn(), queue);
}

// `queue` is the group's send or receive queue. False: it makes no notes any more.
template <typename Queue, typename Wr>
bool prove(const Group& group, Queue& queue, const Wr* chain, const char* name) {
  if (queue.is_proven || !queue.journal.is_noting() || chain == nullptr) return true;
  queue.is_proven = true;
  if (is_right(group, chain)) return true;
  queue.is_unreadable = true;
  tell(group, name);
  queue.journal.note_no_more();
  return false;
}

}  // namespace

void prove_sends(Group& group, const ibv_send_wr* chain) {
  if (prove(group, group.send, chain, "send")) return;
  // The end of a batch that another thread builds the slow way does the same.
  if (group.real_ex != nullptr && !group.send.slow_batch.is_open) build_anew(group);
}

void prove_receives(Group& group, const ibv_recv_wr* chain) {
  (void)prove(group, group.recv, chain, "receive");
}

}  // namespace shift::ops
