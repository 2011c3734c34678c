// Makes a group new: when it is created, and when its QP is reset.
#include "group/group.h"

namespace shift::group {
namespace {

// Each reset begins another life; what was asked for in an older life has no receiver any more.
constinit std::atomic<uint64_t> next_serial{1};

}  // namespace

void SendQueue::renew(const ibv_qp_cap& cap, bool all_signaled, bool by_notes) {
  route = Route::kOnDefault;
  journal.init(cap.max_send_wr, cap.max_send_sge, cap.max_inline_data, all_signaled, by_notes);
  is_proven = false;
  posted = drained_to = given_from = flushed_from = 0;
  sent = {};
  executed = {};
}

void RecvQueue::renew(const ibv_qp_cap& cap, bool by_notes) {
  route = Route::kOnDefault;
  journal.init(cap.max_recv_wr, cap.max_recv_sge, by_notes);
  is_proven = false;
  posted = 0;
}

void Group::life_begin() {
  const bool is_readable = reader.table != nullptr;
  send.renew(cap, sq_sig_all, is_readable && !send.is_unreadable);
  recv.renew(cap, is_readable && !recv.is_unreadable);
  counters = {};
  std::lock_guard lock(attr_mutex);  // other threads look for groups that use an address
  life = {};
  life.serial = next_serial++;
}

}  // namespace shift::group
