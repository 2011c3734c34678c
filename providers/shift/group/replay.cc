#include "group/replay.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "group/completion.h"
#include "group/context.h"
#include "group/fault_sink.h"
#include "group/group.h"
#include "group/keys.h"
#include "group/park.h"
#include "group/plan.h"
#include "util/planted.h"

namespace shift::group {
namespace {

constexpr const char* kNoLocalKey = "a local key has no region on the other NIC";

ibv_wc_opcode completion_opcode(uint32_t opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_LOCAL_INV:
      return IBV_WC_LOCAL_INV;
    case IBV_WR_BIND_MW:
      return IBV_WC_BIND_MW;
    default:
      return IBV_WC_SEND;
  }
}

bool carries_immediate(uint32_t opcode) {
  return opcode == IBV_WR_RDMA_WRITE_WITH_IMM || opcode == IBV_WR_SEND_WITH_IMM;
}

uint32_t total_length(const ibv_send_wr& wr) {
  uint32_t length = 0;
  for (int i = 0; i < wr.num_sge; i++) length += wr.sg_list[i].length;
  return length;
}

// The key of the peer that a request names; nullptr: it needs none. A request that moves no byte
// may carry any number as its key (IBA C9-88), and programs do that with WRITE_WITH_IMM.
uint32_t* remote_key(ibv_send_wr& wr) {
  if (is_atomic(wr.opcode)) return &wr.wr.atomic.rkey;
  const bool has_key = wr.opcode == IBV_WR_RDMA_WRITE || wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
                       wr.opcode == IBV_WR_RDMA_READ;
  return has_key && total_length(wr) > 0 ? &wr.wr.rdma.rkey : nullptr;
}

ibv_wc success_of(const Group& group, const ibv_send_wr& wr) {
  ibv_wc wc{};
  wc.wr_id = wr.wr_id;
  wc.status = IBV_WC_SUCCESS;
  wc.opcode = completion_opcode(wr.opcode);
  wc.byte_len = total_length(wr);
  wc.qp_num = group.qpn();
  if (carries_immediate(wr.opcode)) wc.wc_flags = IBV_WC_WITH_IMM;
  return wc;
}

// `queued`: whether the request is in the send queue. It is if only soft-RoCE's doorbell failed,
// which names no request as bad; then it may be executed.
int post_on_path(Group& group, ibv_send_wr& wr, bool* queued = nullptr) {
  ibv_qp* real = group.real[group.life.path.member];
  ibv_send_wr* bad = &wr;
  const int error = std::abs(real->context->ops.post_send(real, &wr, &bad));
  const bool by_doorbell = error != 0 && bad == nullptr;
  if (queued != nullptr) *queued = error == 0 || by_doorbell;
  return by_doorbell ? EIO : error;
}

// Why no other path would take a request whose post has failed with this errno; nullptr: the path
// is to blame.
const char* refusal_of(int error) {
  if (error == ENOKEY) return kNoLocalKey;
  return post_blames_path(error) ? nullptr : "no NIC takes a request";
}

// The rkey to use for the peer's member on the committed path; nullopt: not known yet.
std::optional<uint32_t> translate_remote(const Group& group, uint32_t rkey) {
  if (group.life.path.peer_member == kDefault || SHIFT_PLANT(remote_keys_untranslated)) return rkey;
  const auto& known = group.life.remote_keys[group.life.path.peer_member];
  const auto it = known.find(rkey);
  if (it == known.end()) return std::nullopt;
  return it->second;
}

}  // namespace

std::vector<uint32_t> rkeys_missing(Group& group) {
  std::lock_guard lock(group.send.mutex);
  const SendJournal& journal = group.send.journal;
  std::vector<uint32_t> keys;
  uint64_t from = group.send.posted, executed = from, fenced = from;
  if (group.send.route != Route::kOnPath) {
    const Plan plan = make_plan(group);
    if (plan.refusal != nullptr) return keys;  // the replay refuses for the plan's reason
    from = plan.first;
    executed = plan.executed.position;
    fenced = plan.fenced;
  }
  for (uint64_t position = from; position < journal.head(); position++) {
    ibv_send_wr wr;
    ibv_sge sges[kMaxSge];
    journal.rebuild(position, &wr, sges);
    // The peer's application may have deregistered memory that an executed request was allowed to
    // touch.
    if (position < executed && (wr.opcode != IBV_WR_RDMA_READ || position < fenced)) continue;
    const uint32_t* rkey = remote_key(wr);
    if (rkey == nullptr || translate_remote(group, *rkey)) continue;
    if (std::find(keys.begin(), keys.end(), *rkey) == keys.end()) keys.push_back(*rkey);
  }
  return keys;
}

std::vector<uint32_t> rkeys_recent(Group& group) {
  constexpr size_t kEnough = 256;
  std::lock_guard lock(group.send.mutex);
  const SendJournal& journal = group.send.journal;
  std::vector<uint32_t> keys;
  const uint64_t depth = journal.depth();
  uint64_t position =
      std::max(journal.head() > depth ? journal.head() - depth : 0, journal.known_from());
  for (; position < journal.head() && keys.size() < kEnough; position++) {
    ibv_send_wr wr;
    ibv_sge sges[kMaxSge];
    journal.rebuild(position, &wr, sges);
    const uint32_t* rkey = remote_key(wr);
    if (rkey == nullptr || translate_remote(group, *rkey)) continue;
    if (std::find(keys.begin(), keys.end(), *rkey) == keys.end()) keys.push_back(*rkey);
  }
  return keys;
}

namespace {

// What became of the WRs that are proven executed. They complete, but a READ whose data may be lost
// is posted again.
struct Completed {
  const char* refusal = nullptr;
  bool path_broken = false;
  uint32_t packets = 0;  // given to the path for this
};

Completed complete_executed(Group& group, const Plan& plan) {
  const SendJournal& journal = group.send.journal;
  Completed result;
  const auto not_posted = [&](int error) {
    result.refusal = refusal_of(error);
    result.path_broken = result.refusal == nullptr;
    return result;
  };
  bool read_pending = false;
  ibv_send_wr wr;
  ibv_sge sges[kMaxSge];
  for (uint64_t position = plan.first; position < plan.executed.position; position++) {
    journal.rebuild(position, &wr, sges);
    const bool signaled = journal.is_signaled(journal.at(position));
    if (wr.opcode == IBV_WR_RDMA_READ && position >= plan.fenced) {
      // The READ was executed, but its data may be lost. The layer may post it again: without a
      // fence flag nothing orders a READ before the effects of later requests (IBA 10.8.3.3). If a
      // later request with a fence flag was executed, the data has arrived, and the peer may use
      // its memory for something else.
      if (uint32_t* rkey = remote_key(wr)) {
        const auto translated = translate_remote(group, *rkey);
        // All of them were asked for, but the reply may have left one out (C11).
        if (!translated) {
          result.refusal = "a remote key is not known";
          return result;
        }
        *rkey = *translated;
      }
      // No region of it is still being registered: the round has waited for that.
      if (translate_local(*group.context, group.life.path.member, sges, wr.num_sge) !=
          KeyState::kReady) {
        result.refusal = kNoLocalKey;
        return result;
      }
      if (const int error = post_on_path(group, wr)) return not_posted(error);
      if (journal.mtu() != 0) result.packets += journal.packets_at(position);
      read_pending = true;
    } else if (read_pending) {
      // This request must not complete before that READ, so an empty WRITE takes its place in the
      // order. This is also done if it is not signaled: should the READ fail, the application gets
      // this request back, too (C1).
      const SendEntry& entry = journal.at(position);
      if (signaled) {
        std::lock_guard cq(group.send_cq->mutex);
        group.life.opcode_of_signaled[entry.signaled_total] = completion_opcode(entry.opcode);
      }
      ibv_send_wr stand_in{};
      stand_in.wr_id = wr.wr_id;
      stand_in.opcode = IBV_WR_RDMA_WRITE;
      if (signaled) stand_in.send_flags = IBV_SEND_SIGNALED;
      if (const int error = post_on_path(group, stand_in)) return not_posted(error);
      result.packets++;
    } else if (signaled) {
      std::lock_guard cq(group.send_cq->mutex);
      ++group.counters.done[0];
      put_side(*group.send_cq, success_of(group, wr));
    }
  }
  return result;
}

// For modes that ask the responder, before the group fails: a WR that is proven executed was a
// success (C4). Stops at the first WR whose result is missing.
void complete_proven(Group& group, const Plan& plan) {
  const SendJournal& journal = group.send.journal;
  ibv_send_wr wr;
  ibv_sge sges[kMaxSge];
  uint64_t position = plan.first;
  for (; position < plan.executed.position; position++) {
    const SendEntry& entry = journal.at(position);
    const bool needs_answer = entry.opcode == IBV_WR_RDMA_READ || is_atomic(entry.opcode);
    if (needs_answer && position >= plan.fenced) break;
    if (!journal.is_signaled(entry)) continue;
    journal.rebuild(position, &wr, sges);
    std::lock_guard cq(group.send_cq->mutex);
    ++group.counters.done[0];
    put_side(*group.send_cq, success_of(group, wr));
  }
  group.send.drained_to = std::max(group.send.drained_to, position);
}

// Notes that the committed path gets WRs from `executed` on, and which packet numbers they will
// have.
void begin_packets(Group& group, const Executed& executed, uint32_t own_packets) {
  SendQueue& send = group.send;
  const int member = group.life.path.member;
  std::lock_guard lock(group.attr_mutex);
  send.executed = executed;
  send.sent = {};
  // With another packet size the counts of the journal would not fit.
  send.sent.known = send.journal.mtu() != 0 &&
                    send.journal.mtu() == group.life.members[member].path_mtu &&
                    group.life.members[member].last_psn.has_value();
  send.sent.begin = group.life.members[member].last_psn.value_or(0);
  send.sent.from = executed.position;
  send.sent.skipped = executed.packets;
  send.sent.psn = send.sent.begin + group.life.members[member].own_packets + own_packets;
  send.sent.total = send.journal.packets();
  for (uint64_t i = executed.position; send.sent.known && i < send.journal.head(); i++) {
    send.sent.total -= send.journal.packets_at(i);
  }
}

// Leaves out the first bytes of a WRITE.
void skip_bytes(ibv_send_wr& wr, uint64_t bytes) {
  wr.wr.rdma.remote_addr += bytes;
  while (wr.num_sge > 0 && bytes >= wr.sg_list[0].length) {
    bytes -= wr.sg_list[0].length;
    wr.sg_list++;
    wr.num_sge--;
  }
  if (wr.num_sge == 0) return;
  wr.sg_list[0].addr += bytes;
  wr.sg_list[0].length -= static_cast<uint32_t>(bytes);
}

bool receives_wait(Group& group) {
  std::lock_guard lock(group.recv.mutex);
  return group.recv.route == Route::kOnPath && group.recv.posted < group.recv.journal.head();
}

}  // namespace

ReplayResult replay(Group& group, uint64_t peer_received) {
  ReplayResult result;
  group.life.control.peer_received = peer_received;
  std::lock_guard lock(group.send.mutex);
  const Plan plan = make_plan(group);
  result.refusal = plan.refusal;
  if (result.refusal != nullptr) {
    if (group.asks_responder()) complete_proven(group, plan);
    return result;
  }

  const Completed completed = complete_executed(group, plan);
  result.completed = static_cast<uint32_t>(plan.executed.position - plan.first);
  result.skipped = plan.executed.packets;
  result.refusal = completed.refusal;
  result.path_broken = completed.path_broken;
  const uint64_t given = std::exchange(group.send.posted, plan.executed.position);
  if (result.refusal != nullptr) return result;
  if (group.asks_responder()) begin_packets(group, plan.executed, completed.packets);
  group.send.given_from = group.send.posted;
  // This path was given everything before `posted`, so later posts may go there, too.
  group.send.route = Route::kOnPath;
  if (result.path_broken) return result;
  const int error = pump(group);
  const uint64_t again = std::min(group.send.posted, std::max(given, plan.executed.position));
  result.posted = static_cast<uint32_t>(again - plan.executed.position);
  result.parked = static_cast<uint32_t>(group.send.posted - again);
  if (error != 0) {
    result.refusal = refusal_of(error);
    result.path_broken = result.refusal == nullptr;
  } else {
    settle(group);
  }
  // The control thread has ignored calls that came during the round; it will act on this one.
  if (receives_wait(group)) fault_sink->pump_wanted(&group);
  return result;
}

namespace {

// The application has seen an error of this path. The QP only flushes requests now, whatever their
// keys, and the peer will not be asked for keys (C6).
bool is_given_up(Group& group) {
  const int member = group.life.path.member;
  CqLock lock(group);
  return group.life.errors.members[member].accept == Accept::kPass &&
         group.life.errors.members[member].fault_reported;
}

KeyState translate_sent(Group& group, const ibv_send_wr& wr, ibv_sge* sges) {
  if (wr.send_flags & IBV_SEND_INLINE) return KeyState::kReady;
  return translate_local(*group.context, group.life.path.member, sges, wr.num_sge);
}

// The queue goes on when the control thread finds that nothing is missing any more. If that thread
// has forgotten the group, the request cannot be posted. Returns 0 or an errno.
int wait_for_missing(Group& group) {
  if (group.life.is_alone) return ENOKEY;
  fault_sink->pump_wanted(&group);
  return 0;
}

// Whether the marker of a drain that was called off is still in the send queue, which has room for
// only as many requests as the application may post.
bool marker_is_in_the_way(Group& group) {
  group.life.markers.awaited = true;
  if (group.life.markers.under_way != 0) return true;  // take_own() will call pump_wanted()
  group.life.markers.awaited = false;
  return false;
}

}  // namespace

namespace {

bool send_waits_for_registration(Group& group) {
  std::lock_guard lock(group.send.mutex);
  SendQueue& send = group.send;
  if (send.route != Route::kOnPath || send.posted == send.journal.head()) return false;
  ibv_send_wr wr;
  ibv_sge sges[kMaxSge];
  send.journal.rebuild(send.posted, &wr, sges);
  if (translate_sent(group, wr, sges) == KeyState::kPending) return true;
  return wr.opcode == IBV_WR_RDMA_READ && !read_back_done(group, wr);
}

bool receive_waits_for_registration(Group& group) {
  std::lock_guard lock(group.recv.mutex);
  const RecvQueue& recv = group.recv;
  if (recv.route != Route::kOnPath || recv.posted == recv.journal.head()) return false;
  ibv_recv_wr wr;
  ibv_sge sges[kMaxSge];
  recv.journal.rebuild(recv.posted, &wr, sges);
  return translate_local(*group.context, group.life.path.member, sges, wr.num_sge) ==
         KeyState::kPending;
}

}  // namespace

bool waits_for_registration(Group& group) {
  return send_waits_for_registration(group) || receive_waits_for_registration(group);
}

int pump_receives(Group& group) {
  RecvQueue& recv = group.recv;
  const int member = group.life.path.member;
  ibv_qp* real = group.real[member];
  for (; recv.posted < recv.journal.head(); recv.posted++) {
    ibv_recv_wr wr, *bad;
    ibv_sge sges[kMaxSge];
    recv.journal.rebuild(recv.posted, &wr, sges);
    switch (translate_local(*group.context, member, sges, wr.num_sge)) {
      case KeyState::kReady:
        break;
      case KeyState::kPending:
        if (is_given_up(group)) break;
        return wait_for_missing(group);  // goes on when the region is registered there
      case KeyState::kMissing:
        return ENOKEY;
    }
    if (const int error = real->context->ops.post_recv(real, &wr, &bad)) return error;
  }
  return 0;
}

int pump(Group& group) {
  SendQueue& send = group.send;
  ibv_send_wr wr;
  ibv_sge sges[kMaxSge];
  while (send.posted < send.journal.head()) {
    send.journal.rebuild(send.posted, &wr, sges);
    if (names_other_nic(group, wr.opcode)) return ENOKEY;
    const ibv_send_wr original = wr;
    if (uint32_t* rkey = remote_key(wr)) {
      const auto translated = translate_remote(group, *rkey);
      if (translated) {
        *rkey = *translated;
      } else if (!is_given_up(group)) {
        return wait_for_missing(group);  // goes on when the peer has answered
      }
    }
    const KeyState local = translate_sent(group, wr, sges);
    if (local != KeyState::kReady && !is_given_up(group)) {
      if (local == KeyState::kMissing) return ENOKEY;
      return wait_for_missing(group);  // goes on when the region is registered there
    }
    if (wr.opcode == IBV_WR_RDMA_READ && !is_given_up(group) && !read_back_done(group, original)) {
      return wait_for_missing(group);  // goes on when the other NICs have answered
    }
    if (send.posted == send.executed.position && send.executed.packets != 0) {
      skip_bytes(wr, uint64_t{send.executed.packets} * send.journal.mtu());
    }
    const bool marked = group.life.markers.under_way != 0;
    bool queued = false;
    const int error = post_on_path(group, wr, &queued);
    if (error == ENOMEM && marked && !group.life.is_alone) {
      if (marker_is_in_the_way(group)) return 0;
      continue;  // the marker has just come out
    }
    if (queued) send.posted++;
    if (queued && error != 0) send.given_from = UINT64_MAX;
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace shift::group
