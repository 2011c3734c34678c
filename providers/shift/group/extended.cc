#include "group/extended.h"

#include <ctime>

#include "group/completion.h"
#include "group/completion_events.h"
#include "group/context.h"

namespace shift::group {
namespace {

uint64_t now_ns(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void read_extra(ibv_cq_ex* real, uint32_t flags, WcExtra* to) {
  if (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) to->device_time = real->read_completion_ts(real);
  if (flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) {
    to->wallclock_ns = real->read_completion_wallclock_ns(real);
  }
  if (flags & IBV_WC_EX_WITH_CVLAN) to->cvlan = real->read_cvlan(real);
  if (flags & IBV_WC_EX_WITH_FLOW_TAG) to->flow_tag = real->read_flow_tag(real);
  if (flags & IBV_WC_EX_WITH_TM_INFO) real->read_tm_info(real, &to->tm);
}

void read_common(ibv_cq_ex* real, ibv_wc* wc) {
  wc->opcode = real->read_opcode(real);
  wc->byte_len = real->read_byte_len(real);
  wc->wc_flags = real->read_wc_flags(real);
  wc->imm_data = real->read_imm_data(real);
  wc->src_qp = real->read_src_qp(real);
  wc->slid = static_cast<uint16_t>(real->read_slid(real));
  wc->sl = real->read_sl(real);
  wc->dlid_path_bits = real->read_dlid_path_bits(real);
}

}  // namespace

int ExtendedPoll::harvest(int most, ibv_wc* wcs, WcExtra* extras) {
  ibv_poll_cq_attr attr{};
  if (real->start_poll(real, &attr) != 0) return 0;
  int got = 0;
  do {
    ibv_wc& wc = wcs[got];
    wc = {};
    extras[got] = {};
    wc.wr_id = real->wr_id;
    wc.status = real->status;
    wc.qp_num = real->read_qp_num(real);
    wc.vendor_err = real->read_vendor_err(real);
    // No other field of a failed completion is valid.
    if (wc.status == IBV_WC_SUCCESS) {
      read_common(real, &wc);
      read_extra(real, read_flags, &extras[got]);
    }
    got++;
  } while (got < most && real->next_poll(real) == 0);
  real->end_poll(real);
  if (clock_khz != 0 && extras[got - 1].device_time != 0) {
    clock_set(extras[got - 1].device_time, now_ns(CLOCK_MONOTONIC));
  }
  return got;
}

void ExtendedPoll::put_back() {
  // The NIC raises no event for them any more, so nothing in the side queue counts as announced.
  if (count > next) cq.announced = 0;
  while (count > next) {
    count--;
    cq.side.emplace_front(batch[count], batch_extra[count]);
  }
}

void ExtendedPoll::forget(uint32_t qpn) {
  uint32_t kept = next;
  for (uint32_t i = next; i < count; i++) {
    if (batch[i].qp_num == qpn) continue;
    batch[kept] = batch[i];
    batch_extra[kept++] = batch_extra[i];
  }
  count = kept;
}

WcExtra extra_now(const CompletionQueue& cq) {
  WcExtra extra;
  if (cq.extended == nullptr || !cq.extended->needs_device) return extra;
  const ExtendedPoll& poll = *cq.extended;
  extra.wallclock_ns = now_ns(CLOCK_REALTIME);
  if (poll.clock_khz != 0) extra.device_time = poll.clock_at(now_ns(CLOCK_MONOTONIC));
  return extra;
}

bool extended_fill_slow(CompletionQueue& cq, bool begin) {
  ExtendedPoll& poll = *cq.extended;
  auto lock = lock_poll(cq, true);
  poll.open.store(ExtendedPoll::thread_mark(), std::memory_order_relaxed);
  if (poll.next == poll.count) {
    if (cq.side.size() < ExtendedPoll::kBatch) collect(cq);
    poll.next = 0;
    poll.count = static_cast<uint32_t>(
        take_side(cq, ExtendedPoll::kBatch, poll.batch.data(), poll.batch_extra.data()));
    if (may_be_hot(cq)) cq.bias.adopt(&cq, Manner::kExtended);
  }
  if (poll.next < poll.count) return true;
  // A start that finds nothing is not followed by an end.
  if (begin) poll.open.store(nullptr, std::memory_order_release);
  return false;
}

void extended_wake(CompletionQueue& cq) {
  auto lock = lock_queue(cq);
  if (!cq.extended->may_poll()) return;
  cq.extended->put_back();
  signal_left(cq);
}

}  // namespace shift::group
