#include "group/flushed.h"

#include <algorithm>
#include <vector>

#include "group/group.h"
#include "util/planted.h"

namespace shift::group {

void flush_note(const CompletionQueue& cq, Group& group, const ibv_wc& wc, bool is_shared) {
  if (&cq != group.send_cq) return;
  auto& flushed = group.life.errors.flushed;
  if (flushed.empty()) flushed.reserve(16);  // many queue pairs break at once
  flushed.push_back({wc.wr_id, is_shared});
}

namespace {

// The completions of requests, without those of receives. One CQ may have both, and an error
// completion tells only its wr_id: the receives that were posted and not consumed are known.
std::optional<std::vector<uint64_t>> requests_among(const Group& group, uint64_t first) {
  const auto& flushed = group.life.errors.flushed;
  std::vector<uint64_t> receives, requests;
  requests.reserve(flushed.size());
  uint64_t own_receives = 0;
  if (group.send_cq == group.recv_cq) {
    const uint64_t from = notifications_received(group);
    if (from < group.recv.posted) receives.reserve(group.recv.posted - from);
    for (uint64_t i = from; i < group.recv.posted; i++) {
      receives.push_back(group.recv.journal.wr_id(i));
      own_receives++;
    }
  }
  for (const Errors::Flushed& one : flushed)
    if (one.is_shared) receives.push_back(one.wr_id);
  std::ranges::sort(receives);
  const auto is_receive = [&](uint64_t wr_id) {
    return std::ranges::binary_search(receives, wr_id);
  };
  for (const Errors::Flushed& one : flushed) {
    if (one.is_shared) continue;
    if (!is_receive(one.wr_id)) {
      requests.push_back(one.wr_id);
    } else if (own_receives-- == 0) {
      return std::nullopt;
    }
  }
  if (own_receives != 0) return std::nullopt;
  for (uint64_t i = first; i < group.send.posted; i++) {
    if (is_receive(group.send.journal.at(i).wr_id)) return std::nullopt;
  }
  return requests;
}

}  // namespace

std::optional<uint64_t> first_flushed(const Group& group) {
  const SendJournal& journal = group.send.journal;
  const auto done = static_cast<uint32_t>(group.counters.done[0]);
  const uint64_t posted = group.send.posted;
  const uint64_t first = std::max(journal.first_incomplete(done), group.send.drained_to);
  const uint64_t given = std::max(first, group.send.given_from);
  if (given > posted) return std::nullopt;
  const auto requests = requests_among(group, first);
  if (!requests || requests->size() > posted - given) return std::nullopt;
  const uint64_t flushed = posted - requests->size();
  for (uint64_t i = flushed; i < posted; i++) {
    if (journal.at(i).wr_id != (*requests)[i - flushed]) return std::nullopt;
  }
  // A signaled request that the path had completed would have told so.
  for (uint64_t i = first; i < flushed; i++) {
    if (journal.is_signaled(journal.at(i))) return std::nullopt;
  }
  if (SHIFT_PLANT(flushed_taken_for_over) && flushed < posted) return flushed + 1;
  return flushed;
}

}  // namespace shift::group
