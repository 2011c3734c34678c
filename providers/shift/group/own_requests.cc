#include "group/own_requests.h"

#include <algorithm>
#include <mutex>

#include "group/completion.h"
#include "group/group.h"
#include "util/planted.h"

namespace shift::group {
namespace {

// Looks at the last `depth` requests that the QP was given, because the QP cannot hold more.
bool is_among(const auto& journal, uint64_t posted, uint64_t wr_id, auto wr_id_at) {
  const uint64_t depth = journal.depth();
  for (uint64_t i = posted > depth ? posted - depth : 0; i < posted; i++) {
    if (wr_id_at(i) == wr_id) return true;
  }
  return false;
}

bool is_the_applications(const Group& group, uint64_t wr_id) {
  const SendJournal& sends = group.send.journal;
  const RecvJournal& receives = group.recv.journal;
  return is_among(sends, group.send.posted, wr_id, [&](uint64_t i) { return sends.wr_id(i); }) ||
         is_among(receives, group.recv.posted, wr_id,
                  [&](uint64_t i) { return receives.wr_id(i); });
}

bool is_receive(OwnRequest::Kind kind) {
  return kind == OwnRequest::Kind::kRecvMarker;
}

std::vector<OwnRequest>& list_of(Group& group, int member, bool receives) {
  OwnRequests& own = group.life.members[member].own;
  return receives ? own.receives : own.sends;
}

}  // namespace

uint64_t own_begin(Group& group, int member, OwnRequest::Kind kind) {
  constexpr uint64_t kKinds = 3;
  uint64_t wr_id = group.tag + static_cast<uint64_t>(kind);
  if (kind != OwnRequest::Kind::kProbe) {
    while (is_the_applications(group, wr_id)) wr_id += kKinds;
  }
  std::lock_guard lock((is_receive(kind) ? group.recv_cq : group.send_cq)->mutex);
  list_of(group, member, is_receive(kind)).push_back({wr_id, kind});
  return wr_id;
}

void own_refused(Group& group, int member, uint64_t wr_id) {
  CqLock lock(group);
  for (bool receives : {false, true}) {
    auto& list = list_of(group, member, receives);
    if (list.empty() || list.back().wr_id != wr_id) continue;
    list.pop_back();
    return;
  }
}

std::optional<OwnRequest::Kind> own_take(const CompletionQueue& cq, Group& group, int member,
                                         const ibv_wc& wc) {
  if (SHIFT_PLANT(own_by_number)) {
    const uint64_t kind = wc.wr_id - group.tag;
    if (kind <= static_cast<uint64_t>(OwnRequest::Kind::kProbe)) {
      return static_cast<OwnRequest::Kind>(kind);
    }
  }
  const bool success = wc.status == IBV_WC_SUCCESS;
  for (bool receives : {false, true}) {
    if (&cq != (receives ? group.recv_cq : group.send_cq)) continue;
    // The opcode of a failed completion is not valid.
    if (success && ((wc.opcode & IBV_WC_RECV) != 0) != receives) continue;
    auto& list = list_of(group, member, receives);
    const auto found = std::ranges::find(list, wc.wr_id, &OwnRequest::wr_id);
    if (found == list.end()) continue;
    const OwnRequest::Kind kind = found->kind;
    list.erase(found);
    return kind;
  }
  return std::nullopt;
}

void own_forget(Group& group, int member) {
  for (CompletionQueue* cq : {group.send_cq, group.recv_cq}) {
    if (member == kDefault) {
      inspect(*cq);
      continue;
    }
    std::lock_guard lock(cq->mutex);
    collect_member(*cq, member);
  }
  CqLock lock(group);
  group.life.members[member].own = {};
}

}  // namespace shift::group
