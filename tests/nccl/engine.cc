// The run from handshake to final verdict.
#include "engine.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>

namespace traffic::nccl {
namespace {
constexpr uint32_t kSendQueueMax = 2 * kRing;
constexpr uint64_t kNsPerMs = 1'000'000;
}  // namespace

Engine::Engine(const Options& options, bool is_client, Times times, Transport* transport,
               SideChannel* side, Report* report)
    : options_(options),
      is_client_(is_client),
      times_(times),
      transport_(transport),
      side_(side),
      report_(report),
      farewell_(transport, report) {
  connections_.resize(options.connections);
  for (uint32_t i = 0; i < options.connections; ++i) connection_make(i);
  handshake_send();
  last_progress_ns_ = now_ns();
}

void Engine::connection_make(uint32_t index) {
  Connection& connection = connections_[index];
  uint32_t base = index * (options_.qps + 1);
  int direction = options_.bidirectional ? static_cast<int>(index % 2) : 0;
  std::vector<SendQueue*> queues;
  for (uint32_t qp = base; qp <= base + options_.qps; ++qp) {
    uint32_t number = transport_->qp_number(qp);
    qp_of_number_[number] = qp;
    connection.queues.push_back(std::make_unique<SendQueue>(qp, number, kSendQueueMax, report_));
    queues.push_back(connection.queues.back().get());
    if (!is_flush_qp(options_, qp)) farewell_.add(qp, queues.back());
  }
  Layout layout(options_, direction, index);
  if ((direction == 0) == is_client_) {
    connection.send = std::make_unique<SendComm>(layout, base, queues, transport_, report_);
  } else {
    connection.recv = std::make_unique<RecvComm>(layout, base, queues, transport_, report_);
  }
}

void Engine::handshake_send() {
  for (uint32_t i = 0; i < connections_.size(); ++i) {
    const Connection& connection = connections_[i];
    Region first = connection.send ? connection.send->ring() : connection.recv->data();
    Region second = connection.send ? Region{} : connection.recv->sizes();
    side_->send_line(fmt::format("region {} {} {} {} {}", i,
                                 reinterpret_cast<uintptr_t>(first.base), first.rkey,
                                 reinterpret_cast<uintptr_t>(second.base), second.rkey));
  }
  side_->send_line("ready 0");
}

bool Engine::step() {
  bool worked = lines_handle();
  if (phase_ == Phase::kDone || phase_ == Phase::kHandshake) {
    phase_advance();
    return worked;
  }
  worked |= completions_handle();
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

bool Engine::lines_handle() {
  bool worked = false;
  while (auto line = side_->receive_line()) {
    line_handle(*line);
    worked = true;
  }
  if (!side_->is_closed() || phase_ == Phase::kDone || is_peer_final_) return worked;
  if (peer_abort_code_ != 0) {
    phase_ = Phase::kDone;
  } else if (!times_.does_outlive || phase_ == Phase::kHandshake) {
    report_->error("the other end is gone");
    phase_ = Phase::kDone;
  } else if (phase_ != Phase::kOrphaned) {
    orphan();
  }
  return worked;
}

void Engine::line_handle(const std::string& line) {
  char word[16] = "";
  uint64_t a = 0, b = 0, c = 0, d = 0, e = 0;
  sscanf(line.c_str(), "%15s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, word, &a,
         &b, &c, &d, &e);
  std::string_view what = word;
  if (what == "region" && a < connections_.size()) {
    Connection& connection = connections_[a];
    RemoteRegion first{b, static_cast<uint32_t>(c)}, second{d, static_cast<uint32_t>(e)};
    if (connection.send) connection.send->remote_set(first, second);
    if (connection.recv) connection.recv->remote_set(first);
    ++handshakes_;
  } else if (what == "ready") {
    is_ready_ = true;
  } else if (what == "stop") {
    is_stopping_ = true;
  } else if (what == "done") {
    is_peer_done_ = true;
  } else if (what == "final") {
    is_peer_final_ = true;
  } else if (what == "abort") {
    peer_abort_code_ = static_cast<int>(a);
    if (phase_ < Phase::kFailing) fail();
  } else if (what == "fin" && a < connections_.size() && connections_[a].recv) {
    connections_[a].recv->total_set(b);
  }
}

bool Engine::completions_handle() {
  std::array<ibv_wc, 4> wcs;  // as many as NCCL asks for
  int count = transport_->poll(wcs);
  if (count < 0) report_->error(fmt::format("poll_cq {}", count));
  for (int i = 0; i < count; ++i) completion_handle(wcs[i]);
  return count != 0;
}

void Engine::completion_handle(const ibv_wc& wc) {
  auto found = qp_of_number_.find(wc.qp_num);
  if (found == qp_of_number_.end()) {
    report_->violation("completion-qp-num",
                       fmt::format("{:#x} is none of ours, wr_id {:#x}", wc.qp_num, wc.wr_id));
    return;
  }
  Connection& connection = connections_[found->second / (options_.qps + 1)];
  uint32_t qp = found->second % (options_.qps + 1);
  if (!ReceiveOrder::is_receive_wr_id(wc.wr_id)) return send_completion(connection, qp, wc);
  if (wc.status != IBV_WC_SUCCESS) {
    report_->error(fmt::format("receive wc status {} ({}) qp {:#x} wr_id {:#x}",
                               static_cast<int>(wc.status), ibv_wc_status_str(wc.status), wc.qp_num,
                               wc.wr_id));
  } else if (connection.recv && qp < options_.qps) {
    connection.recv->notification(qp, wc);
  } else {
    report_->violation("receive-unknown", fmt::format("wr_id {:#x}", wc.wr_id));
  }
}

void Engine::send_completion(Connection& connection, uint32_t qp, const ibv_wc& wc) {
  retired_.clear();
  connection.queues[qp]->completion(wc, &retired_);
  for (const PostedSend& work : retired_) {
    if (work.kind != WorkKind::kMessage || !work.is_signaled) continue;
    if (connection.send) connection.send->share_done(work.number);
    if (connection.recv) connection.recv->flush_done(work.number);
  }
}

bool Engine::traffic_advance() {
  if (!report_->is_clean()) return false;
  bool worked = false;
  for (Connection& connection : connections_)
    while (connection.recv && connection.recv->grant_next()) worked = true;
  for (uint32_t i = 0; i < connections_.size(); ++i) {
    uint64_t now = options_.rate != 0 ? now_ns() : 0;
    if (now < next_send_ns_) break;
    Connection& connection = connections_[next_connection_++ % connections_.size()];
    if (!connection.send || !connection.send->send_next()) continue;
    worked = true;
    // From now on, not from when it was due: after an outage there is no burst to catch up.
    if (options_.rate != 0) next_send_ns_ = now + 1'000'000'000ull / options_.rate;
  }
  return worked;
}

void Engine::phase_advance() {
  uint64_t now = now_ns();
  if (phase_ < Phase::kFailing && !report_->is_clean()) fail();
  switch (phase_) {
    case Phase::kHandshake:
      if (!is_ready_ || handshakes_ < connections_.size()) break;
      phase_ = Phase::kRunning;
      started_ns_ = last_progress_ns_ = now;
      break;
    case Phase::kRunning:
      running_advance(now);
      break;
    case Phase::kQuiet:
      if (now < quiet_until_ns_) break;
      finish();
      if (!report_->is_clean()) break;
      side_->send_line("final 0");
      phase_ = Phase::kFinal;
      last_progress_ns_ = now;
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

void Engine::running_advance(uint64_t now) {
  if (options_.duration_ms != 0 && now > started_ns_ + options_.duration_ms * kNsPerMs)
    is_stopping_ = true;
  bool all = true;
  for (uint32_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    if (connection.recv) all &= connection.recv->is_done();
    for (const auto& queue : connection.queues) all &= !queue->has_signaled_pending();
    if (!connection.send) continue;
    if (is_stopping_) connection.send->stop();
    all &= connection.send->is_done();
    if (!connection.send->is_done() || connection.is_fin_sent) continue;
    side_->send_line(fmt::format("fin {} {}", i, connection.send->total()));
    connection.is_fin_sent = true;
  }
  if (all && !is_done_sent_) {
    side_->send_line("done 0");
    is_done_sent_ = true;
  }
  if (!all || !is_peer_done_) return;
  phase_ = Phase::kQuiet;
  quiet_until_ns_ = now + options_.quiet_ms * kNsPerMs;
}

void Engine::fail() {
  phase_ = Phase::kFailing;
  fail_until_ns_ = now_ns() + times_.linger_ms * kNsPerMs;
}

// The other process is gone: each QP must say so, as with the stock library, and soon.
void Engine::orphan() {
  phase_ = Phase::kOrphaned;
  last_progress_ns_ = now_ns();
}

void Engine::stop() {
  if (!is_stopping_) side_->send_line("stop 0");
  is_stopping_ = true;
}

void Engine::finish() {
  for (Connection& connection : connections_) {
    for (auto& queue : connection.queues) queue->finish();
    if (connection.send) connection.send->finish();
    if (connection.recv) connection.recv->finish();
  }
  if (inspect_) inspect_();
}

void Engine::progress_watch() {
  uint64_t now = now_ns(), made = progress();
  if (made == last_progress_) return;
  if (last_progress_ != 0) longest_gap_ns_ = std::max(longest_gap_ns_, now - last_progress_ns_);
  last_progress_ = made;
  last_progress_ns_ = now;
}

bool Engine::is_stalled() const {
  return phase_ != Phase::kQuiet && phase_ != Phase::kDone &&
         now_ns() > last_progress_ns_ + times_.stall_ms * kNsPerMs;
}

int Engine::exit_code() const {
  int own = report_->exit_code();
  return own != kExitRight ? own : peer_abort_code_;
}

uint64_t Engine::progress() const {
  uint64_t sum = 0;
  for (const Connection& connection : connections_)
    sum += connection.send ? connection.send->completed() : connection.recv->consumed();
  return sum;
}

uint64_t Engine::bytes_completed() const {
  uint64_t sum = 0;
  for (const Connection& connection : connections_)
    if (connection.send) sum += connection.send->bytes_completed();
  return sum;
}

bool Engine::is_everything_flushed() const {
  for (const Connection& connection : connections_)
    for (const auto& queue : connection.queues)
      if (queue->pending() != 0) return false;
  return true;
}

std::string Engine::state_text() const {
  std::string text = fmt::format("phase {}\n", static_cast<int>(phase_));
  for (uint32_t i = 0; i < connections_.size(); ++i) {
    const Connection& connection = connections_[i];
    text += fmt::format("connection {}:", i);
    if (connection.send)
      text += fmt::format(" sent {} completed {} of {}", connection.send->sent(),
                          connection.send->completed(), connection.send->total());
    if (connection.recv)
      text += fmt::format(" granted {} consumed {}, {} receives wait", connection.recv->granted(),
                          connection.recv->consumed(), connection.recv->receives_pending());
    text += "; pending send WRs";
    for (const auto& queue : connection.queues) text += fmt::format(" {}", queue->pending());
    text += '\n';
  }
  return text;
}

}  // namespace traffic::nccl
