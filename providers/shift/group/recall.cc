// Takes receives out of a member's SRQ, although verbs have no call for it. The layer has two QPs
// of its own on that NIC: the second is on the SRQ, and the first sends it empty messages.

#include <algorithm>
#include <cerrno>
#include <utility>

#include "group/command_threads.h"
#include "group/context.h"
#include "group/domain.h"
#include "group/fault_sink.h"
#include "group/own_qp.h"
#include "group/port.h"
#include "group/shared_queue.h"
#include "group/stock.h"
#include "util/backoff.h"
#include "util/log.h"
#include "util/planted.h"

namespace shift::group {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kWindow = 64;
// If it takes longer, something is wrong with the NIC; the path is tried again later.
constexpr milliseconds kRecallPatience{300};
// The pause after a failure: the command thread does nothing else while it tries.
constexpr milliseconds kCleansePause{100};
constexpr int kCleanseDoublings = 5;

}  // namespace

Recall::~Recall() {
  {
    std::lock_guard lock(queue.context.mutex);
    std::erase_if(queue.context.own_qps,
                  [this](const ibv_qp* qp) { return qp == sender_ || qp == receiver_; });
  }
  if (receiver_ != nullptr) (void)stock->destroy_qp(receiver_);
  if (sender_ != nullptr) (void)stock->destroy_qp(sender_);
  if (cq_ != nullptr) (void)stock->destroy_cq(cq_);
}

bool Recall::make() {
  ibv_context* context = queue.context.members[member].real;
  if (cq_ == nullptr) cq_ = stock->create_cq(context, 4 * kWindow, nullptr, nullptr, 0);
  if (cq_ == nullptr) return false;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq_;
  init.cap.max_send_wr = kWindow;
  init.cap.max_send_sge = 1;
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 1;
  // A parent domain is not used: its allocators belong to the program, and no command thread may
  // call them.
  ibv_pd* pd = queue.pd->domain().real[member];
  for (ibv_qp** qp : {&sender_, &receiver_}) {
    if (qp == &receiver_) init.srq = queue.members[member].real;
    if (*qp != nullptr) continue;
    *qp = stock->create_qp(pd, &init);
    if (*qp == nullptr) return false;
    std::lock_guard lock(queue.context.mutex);
    queue.context.own_qps.push_back(*qp);
  }
  return true;
}

bool Recall::connect() {
  ibv_context* context = queue.context.members[member].real;
  const auto addresses = port_addresses(context, kPortNumber);
  if (addresses.empty() || !make()) return false;
  const PortAddress& own = addresses.front();
  sent_ = acknowledged_ = taken_ = 0;
  connected_ = own_qp_connect(sender_, receiver_, own.gid, static_cast<int>(own.index), 0) &&
               own_qp_connect(receiver_, sender_, own.gid, static_cast<int>(own.index), 0);
  return connected_;
}

bool Recall::poll() {
  ibv_wc wc[16];
  bool is_good = true;
  int got;
  while ((got = cq_->context->ops.poll_cq(cq_, 16, wc)) > 0) {
    for (int i = 0; i < got; i++) {
      if (ReceiveSlot* slot = queue.find(wc[i])) {
        queue.give_back(slot);
        taken_++;
        continue;
      }
      acknowledged_++;
      if (wc[i].status == IBV_WC_SUCCESS) continue;
      is_good = false;
      // The first error is the cause; flushes follow.
      if (wc[i].status == IBV_WC_RNR_RETRY_EXC_ERR) found_empty_ = true;
      if (wc[i].status != IBV_WC_RNR_RETRY_EXC_ERR && wc[i].status != IBV_WC_WR_FLUSH_ERR) {
        found_broken_ = true;
      }
    }
  }
  return is_good;
}

// Both QPs take no more receives, and those that they have taken are given back. A later RESET
// would drop them.
void Recall::shut() {
  connected_ = false;
  own_qp_to_state(sender_, IBV_QPS_ERR);
  own_qp_to_state(receiver_, IBV_QPS_ERR);
  const auto deadline = std::chrono::steady_clock::now() + kRecallPatience;
  for (Backoff backoff; acknowledged_ != sent_ && std::chrono::steady_clock::now() < deadline;) {
    (void)poll();
    backoff.wait();
  }
  (void)poll();
}

Recall::Taken Recall::take(uint32_t count, const std::function<bool()>& is_vain) {
  found_empty_ = found_broken_ = false;
  if (is_vain()) return Taken::kLate;
  if (!connected_ && !connect()) return Taken::kBroken;
  const auto deadline = std::chrono::steady_clock::now() + kRecallPatience;
  const uint32_t end = sent_ + count;
  bool is_good = true;
  Backoff backoff;
  while (is_good && (sent_ != end || acknowledged_ != sent_ || taken_ != sent_)) {
    while (sent_ != end && sent_ - acknowledged_ < kWindow && sent_ - taken_ < kWindow) {
      ibv_send_wr wr{}, *bad;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED;
      if (sender_->context->ops.post_send(sender_, &wr, &bad) != 0) break;
      sent_++;
    }
    const uint32_t before = acknowledged_ + taken_;
    is_good = poll() && std::chrono::steady_clock::now() < deadline && !is_vain();
    if (acknowledged_ + taken_ != before) {
      backoff = Backoff();
    } else if (is_good) {
      backoff.wait();
    }
  }
  if (is_good) return Taken::kAll;
  shut();
  return found_empty_ ? Taken::kEmpty : found_broken_ ? Taken::kBroken : Taken::kLate;
}

void SharedQueue::recall_some(int dry) {
  int from = kNoMember;
  uint32_t count = 0;
  {
    std::lock_guard lock(mutex);
    recall_asked &= ~(1u << dry);
    if (!bring_waiting()) return;
    dry = emptiest();
    if (dry == kNoMember) return;
    for (int m = 0; m < context.member_count; m++) {
      const Member& one = members[m];
      if (one.groups == 0 || m == dry || context.members[m].dead) continue;
      if (is_being_left(m)) continue;
      const uint32_t have = members[dry].posted;
      if (one.posted <= have || (one.posted - have) / 2 <= count) continue;
      from = m;
      count = (one.posted - have) / 2;
    }
    if (from == kNoMember) return;
    // One recall at a time: a NIC that carries nothing takes long for each, and its thread has
    // other commands.
    if (std::exchange(members[from].gives, true) && !SHIFT_PLANT(recalls_pile_up)) {
      members[from].gives_again = true;
      return;
    }
  }
  const auto task = [held = Held(this), from, count] { held->recall_from(from, count); };
  if (on_nic(context, from, task)) return;
  std::lock_guard lock(mutex);
  members[from].gives = false;
}

std::optional<uint64_t> SharedQueue::take_turn() {
  int from = kNoMember;
  uint64_t consumed = 0;
  {
    std::lock_guard lock(mutex);
    const int dry = emptiest();
    takes_turns = members_used > 1 && dry != kNoMember && members[dry].posted == 0 && live != 0;
    if (!takes_turns) return std::nullopt;
    consumed = next_order - live;
    for (int m = 0; m < context.member_count; m++) {
      const Member& one = members[m];
      if (one.groups == 0 || one.posted == 0 || context.members[m].dead || is_being_left(m))
        continue;
      if (from == kNoMember || one.claim > members[from].claim) from = m;
    }
    if (from == kNoMember || members[from].gives) return consumed;
    members[from].gives = true;
    members[from].claim = -++last_claim;
  }
  const auto task = [held = Held(this), from] { held->recall_from(from, 1); };
  if (on_nic(context, from, task)) return consumed;
  std::lock_guard lock(mutex);
  members[from].gives = false;
  return consumed;
}

// The caller holds mutex.
bool SharedQueue::is_being_left(int member) const {
  return members[member].groups == members[member].leaving && !SHIFT_PLANT(recalled_from_leaving);
}

void SharedQueue::recall_from(int member, uint32_t count) {
  auto& tool = recall[member];
  if (tool == nullptr) tool = std::make_unique<Recall>(*this, member);
  const Recall::Taken taken = tool->take(count, [this, member] {
    std::lock_guard lock(mutex);
    return is_being_left(member);
  });
  std::lock_guard lock(mutex);
  members[member].gives = false;
  const bool was_asked = std::exchange(members[member].gives_again, false);
  (void)bring_waiting();
  // The groups that can still consume there may be idle, and would notice nothing. When they have
  // left the member, its receives are free to go elsewhere.
  if (taken == Recall::Taken::kBroken) {
    fault_sink->receives_stuck(this, member);
  } else if (taken == Recall::Taken::kLate || was_asked) {
    ask_if_dry();
  }
  SHIFT_DEBUG("%s: %u shared receives asked back from member %d", context.device->dev.name, count,
              member);
}

bool SharedQueue::cleanse(int member) {
  uint32_t count = 0;
  {
    std::lock_guard lock(mutex);
    count = members[member].stale;
    if (count == 0) return true;
    if (context.members[member].dead) return false;
  }
  // Each group on this queue asks for this; a NIC that has just failed is not tried again soon.
  const auto now = std::chrono::steady_clock::now();
  if (now < cleanse_not_before[member] || !member_port_is_up(context, member)) return false;
  auto& tool = recall[member];
  if (tool == nullptr) tool = std::make_unique<Recall>(*this, member);
  const bool is_empty = tool->take(count, [] { return false; }) == Recall::Taken::kEmpty;
  std::lock_guard lock(mutex);
  if (!is_empty && members[member].stale != 0) {
    const int doublings = std::min(cleanse_failures[member]++, kCleanseDoublings);
    cleanse_not_before[member] =
        std::chrono::steady_clock::now() + kCleansePause * (1 << doublings);
  } else {
    cleanse_failures[member] = 0;
  }
  if (!is_empty) return members[member].stale == 0;
  // There were fewer receives than stale slots: an earlier connection of the recall has lost
  // completions.
  for (uint32_t i = 0; i < slot_count && members[member].stale > 0; i++) {
    ReceiveSlot& slot = slots[i];
    if (slot.state != ReceiveSlot::State::kStale || slot.member != member) continue;
    slot.state = ReceiveSlot::State::kFree;
    free.push_back(&slot);
    members[member].stale--;
  }
  return members[member].stale == 0;
}

namespace {

// On the NIC's command thread.
void twin_srq_create(SharedQueue& queue, int member) {
  ibv_srq_init_attr init{};
  init.attr.max_wr = queue.max_wr;
  init.attr.max_sge = queue.max_sge;
  ibv_pd* pd = queue.pd->real[member];
  ibv_srq* real = pd != nullptr ? stock->create_srq(pd, &init) : nullptr;
  if (real == nullptr) {
    SHIFT_WARN_LIMITED("%s: no shared receive queue on %s (errno %d): its QPs cannot move there",
                       queue.context.device->dev.name, queue.context.name(member), errno);
    return;
  }
  std::lock_guard lock(queue.mutex);
  queue.members[member].real = real;
}

void twin_srq_destroy(SharedQueue& queue, int member) {
  queue.recall[member].reset();
  if (member == kDefault) return;
  ibv_srq* real;
  {
    std::lock_guard lock(queue.mutex);
    real = std::exchange(queue.members[member].real, nullptr);
  }
  if (real != nullptr && stock->destroy_srq(real) != 0) {
    SHIFT_WARN_LIMITED("%s: a shared receive queue could not be destroyed",
                       queue.context.device->dev.name);
  }
}

}  // namespace

void twin_srqs_create(SharedQueue& queue) {
  for (int m = kDefault + 1; m < queue.context.member_count; m++)
    (void)on_nic(queue.context, m, [held = Held(&queue), m] { twin_srq_create(*held, m); });
}

void twin_srqs_destroy(SharedQueue& queue) {
  for (int m = kDefault; m < queue.context.member_count; m++)
    (void)on_nic(queue.context, m, [held = Held(&queue), m] { twin_srq_destroy(*held, m); });
}

}  // namespace shift::group
