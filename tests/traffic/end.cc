// The phases of a run, and the lines that the two ends send each other.
#include "end.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>

#include "wr_id.h"

namespace traffic {
namespace {
constexpr uint64_t kNsPerMs = 1'000'000;
}  // namespace

End::End(EndPlan plan, EndTimes times, Transport* transport, SideChannel* side, Report* report)
    : transport_(transport),
      side_(side),
      report_(report),
      pace_(plan.rate),
      plan_(plan),
      times_(times),
      farewell_(transport, report),
      last_progress_ns_(now_ns()) {}

SendQueue* End::queue_add(uint32_t capacity, bool is_loopback) {
  uint32_t qp = static_cast<uint32_t>(queues_.size()), number = transport_->qp_number(qp);
  qp_of_number_[number] = qp;
  queues_.push_back(std::make_unique<SendQueue>(qp, number, capacity, report_));
  if (!is_loopback) farewell_.add(qp, queues_.back().get());
  return queues_.back().get();
}

void End::region_tell(const Region& first, const Region& second) {
  side_->send_line(fmt::format("region {} {} {} {} {}", regions_told_++,
                               reinterpret_cast<uintptr_t>(first.base), first.rkey,
                               reinterpret_cast<uintptr_t>(second.base), second.rkey));
}

void End::handshake_end() {
  side_->send_line("ready");
}

bool End::step() {
  bool worked = lines_take();
  if (phase_ == Phase::kDone || phase_ == Phase::kHandshake) {
    phase_advance();
    return worked;
  }
  if (!is_passive()) worked |= completions_take();
  if (phase_ == Phase::kOrphaned) {
    farewell_.step();
    if (farewell_.is_over()) phase_ = Phase::kDone;
    return true;
  }
  if (phase_ == Phase::kRunning) worked |= traffic_advance();
  phase_advance();
  progress_watch();
  return worked;
}

bool End::lines_take() {
  bool worked = false;
  while (auto line = side_->receive_line()) {
    line_handle(*line);
    worked = true;
  }
  if (side_->is_closed() && phase_ != Phase::kDone && !is_peer_final_) peer_gone();
  return worked;
}

void End::line_handle(const std::string& line) {
  char text[16] = "";
  uint64_t a = 0, b = 0, c = 0, d = 0, e = 0;
  sscanf(line.c_str(), "%15s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, text, &a,
         &b, &c, &d, &e);
  std::string_view word = text;
  if (word == "region" && a < regions_told_) {
    region_take(a, {b, static_cast<uint32_t>(c)}, {d, static_cast<uint32_t>(e)});
    ++regions_taken_;
  } else if (word == "ready") {
    is_peer_ready_ = true;
  } else if (word == "stop") {
    is_stopping_ = true;
  } else if (word == "done") {
    is_peer_done_ = true;
  } else if (word == "final") {
    is_peer_final_ = true;
  } else if (word == "abort") {
    peer_abort_code_ = static_cast<int>(a);
    if (phase_ < Phase::kFailing) fail();
  } else if (a < regions_told_) {
    line_take(word, a, b);
  }
}

// The other process has ended or died. Each QP must soon report an error then, as it does with the
// stock library.
void End::peer_gone() {
  if (phase_ == Phase::kOrphaned) return;
  if (peer_abort_code_ == 0 && times_.does_outlive && phase_ != Phase::kHandshake) {
    phase_ = Phase::kOrphaned;
    last_progress_ns_ = now_ns();
    return;
  }
  if (peer_abort_code_ == 0) report_->error("the other end is gone");
  phase_ = Phase::kDone;
}

bool End::completions_take() {
  std::array<ibv_wc, kPollMax> wcs;
  int count = transport_->poll({wcs.data(), poll_max()});
  if (count < 0) report_->error(fmt::format("poll_cq {}", count));
  for (int i = 0; i < count; ++i) completion_handle(wcs[i]);
  return count != 0;
}

void End::completion_handle(const ibv_wc& wc) {
  auto found = qp_of_number_.find(wc.qp_num);
  if (found == qp_of_number_.end()) {
    report_->violation("completion-qp-num",
                       fmt::format("{:#x} is no QP of this end, wr_id {:#x}", wc.qp_num, wc.wr_id));
    return;
  }
  uint32_t qp = found->second;
  if (!is_receive_wr_id(wc.wr_id)) {
    retired_.clear();
    queues_[qp]->completion(wc, &retired_);
    for (const PostedSend& work : retired_) send_retired(qp, work);
  } else if (wc.status == IBV_WC_SUCCESS) {
    receive_completed(qp, wc);
  } else {
    report_->error(fmt::format("receive wc status {} ({}) qp {:#x} wr_id {:#x}",
                               static_cast<int>(wc.status), ibv_wc_status_str(wc.status), wc.qp_num,
                               wc.wr_id));
  }
}

void End::phase_advance() {
  uint64_t now = now_ns();
  if (phase_ < Phase::kFailing && !report_->is_clean()) fail();
  switch (phase_) {
    case Phase::kHandshake:
      if (!is_peer_ready_ || regions_taken_ < regions_told_) break;
      phase_ = Phase::kRunning;
      started_ns_ = last_progress_ns_ = now;
      break;
    case Phase::kRunning:
      running_advance(now);
      break;
    case Phase::kQuiet:
      quiet_advance(now);
      break;
    case Phase::kFinal:
      if (is_peer_final_) phase_ = Phase::kDone;
      break;
    case Phase::kFailing:
      if (now < fail_until_ns_) break;
      side_->send_line(fmt::format("abort {}", report_->exit_code()));
      phase_ = Phase::kDone;
      break;
    case Phase::kOrphaned:
    case Phase::kDone:
      break;
  }
}

void End::running_advance(uint64_t now) {
  if (plan_.duration_ms != 0 && now > started_ns_ + plan_.duration_ms * kNsPerMs)
    is_stopping_ = true;
  if (is_stopping_) senders_stop();
  if (!is_complete()) return;
  if (!is_done_sent_) side_->send_line("done");
  is_done_sent_ = true;
  if (!is_peer_done_) return;
  phase_ = Phase::kQuiet;
  quiet_until_ns_ = now + plan_.quiet_ms * kNsPerMs;
}

void End::quiet_advance(uint64_t now) {
  if (now < quiet_until_ns_) return;
  // No phase waits for the completions of the last credits; on a busy machine they come late.
  if (is_owed_completions() && now < quiet_until_ns_ + stall_ns() / 2) return;
  finish();
  if (!report_->is_clean()) return;
  side_->send_line("final");
  phase_ = Phase::kFinal;
  last_progress_ns_ = now;
}

void End::finish() {
  completions_take();  // also at a passive end, where nothing may have come
  for (auto& queue : queues_) queue->finish();
  memory_judge();
  if (inspect_) inspect_();
}

void End::fail() {
  phase_ = Phase::kFailing;
  fail_until_ns_ = now_ns() + times_.linger_ms * kNsPerMs;
}

void End::stop() {
  if (!is_stopping_) side_->send_line("stop");
  is_stopping_ = true;
}

void End::progress_watch() {
  uint64_t now = now_ns(), made = progress();
  if (made != last_progress_) {
    if (last_progress_ != 0) pauses_.add({last_progress_ns_, now});
    last_progress_ = made;
    last_progress_ns_ = now;
  }
  if (phase_ == Phase::kRunning || phase_ == Phase::kFinal) idle_watch(now - last_progress_ns_);
}

void End::idle_watch(uint64_t) {}

bool End::is_stalled() const {
  return phase_ != Phase::kQuiet && phase_ != Phase::kDone &&
         now_ns() > last_progress_ns_ + stall_ns();
}

int End::exit_code() const {
  int own = report_->exit_code();
  return own != kExitRight ? own : peer_abort_code_;
}

uint64_t End::idle_until_ns() const {
  if (phase_ == Phase::kQuiet) return quiet_until_ns_;
  return phase_ == Phase::kRunning ? pace_.next_ns() : 0;
}

bool End::is_everything_flushed() const {
  return std::ranges::all_of(queues_, [](const auto& queue) { return queue->pending() == 0; });
}

bool End::is_owed_completions() const {
  return std::ranges::any_of(queues_,
                             [](const auto& queue) { return queue->has_signaled_pending(); });
}

std::string End::state_text() const {
  std::string text = fmt::format("phase {}\n", static_cast<int>(phase_)) + flows_text();
  for (size_t qp = 0; qp < queues_.size(); ++qp)
    text += fmt::format("qp {}: {} send WRs pending\n", qp, queues_[qp]->pending());
  return text;
}

}  // namespace traffic
