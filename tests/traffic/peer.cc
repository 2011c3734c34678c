// The run from handshake to final verdict. Completions are in peer_data.cc.
#include "peer.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace traffic {
namespace {
constexpr uint32_t kCreditSlots = 32;
}  // namespace

Peer::Peer(const Traffic& traffic, bool is_client, PeerTimes times, Transport* transport,
           SideChannel* side, Report* report)
    : traffic_(traffic),
      is_client_(is_client),
      stall_ns_(uint64_t{times.stall_ms} * 1'000'000),
      linger_ns_(uint64_t{times.linger_ms} * 1'000'000),
      does_outlive_(times.does_outlive),
      transport_(transport),
      side_(side),
      report_(report),
      farewell_(transport, report) {
  channels_make();
  for (auto& queue : receive_queues_)
    if (int error = queue->refill(); error != 0) report_->error(fmt::format("post_recv {}", error));
  handshake_send();
  last_progress_ns_ = now_ns();
}

void Peer::channels_make() {
  bool sends = is_client_ || traffic_.bidirectional;
  bool receives = !is_client_ || traffic_.bidirectional;
  is_passive_ =
      !sends && traffic_.credits == Credits::kTcp &&
      (traffic_.op == Op::kWrite || traffic_.op == Op::kRead || traffic_.op == Op::kAtomic);
  control_ = transport_->region_add(traffic_.qps * kControlBytes);
  for (uint32_t qp = 0; qp < traffic_.qps; ++qp) {
    Channel& channel = channels_.emplace_back();
    uint32_t number = transport_->qp_number(qp);
    qp_of_number_[number] = qp;
    channel.queue = std::make_unique<SendQueue>(qp, number, traffic_.depth + kCreditSlots, report_);
    Plan outgoing(traffic_, is_client_ ? 0 : 1, qp), incoming(traffic_, is_client_ ? 1 : 0, qp);
    if (sends) channel.sender = std::make_unique<Sender>(outgoing, transport_, report_);
    if (!receives) continue;
    channel.receiver = std::make_unique<Receiver>(incoming, transport_, report_);
    channel.granted_sent = channel.receiver->granted();
    if (is_passive_) continue;
    if (qp == 0 || !traffic_.srq) {
      uint32_t posted = incoming.window() * (traffic_.srq ? traffic_.qps : 1);
      uint64_t key = incoming.poison_key(Domain::kReceivePoison, qp);
      receive_queues_.push_back(std::make_unique<ReceiveQueue>(
          qp, posted, incoming.slot_size(), traffic_.srq, key, transport_, report_));
    }
    channel.receives = receive_queues_.back().get();
  }
}

void Peer::handshake_send() {
  for (uint32_t qp = 0; qp < traffic_.qps; ++qp) {
    const Channel& channel = channels_[qp];
    Region target = channel.receiver ? channel.receiver->target() : Region{};
    side_->send_line(fmt::format(
        "region {} {} {} {} {}", qp, reinterpret_cast<uintptr_t>(target.base), target.rkey,
        reinterpret_cast<uintptr_t>(control_.base + qp * kControlBytes), control_.rkey));
  }
  side_->send_line("ready 0 0");
}

bool Peer::step() {
  bool worked = lines_handle();
  if (phase_ == Phase::kDone || phase_ == Phase::kHandshake) {
    phase_advance();
    return worked;
  }
  if (!is_passive_) worked |= completions_handle();
  if (phase_ == Phase::kOrphaned) {
    farewell_.step();
    if (farewell_.is_over()) phase_ = Phase::kDone;
    return true;
  }
  if (phase_ == Phase::kRunning) {
    credit_words_read();
    worked |= sends_post();
    worked |= credits_give();
    fences_send();
  }
  phase_advance();
  stall_check();
  return worked;
}

bool Peer::lines_handle() {
  bool worked = false;
  while (auto line = side_->receive_line()) {
    line_handle(*line);
    worked = true;
  }
  if (side_->is_closed() && phase_ != Phase::kDone && !is_peer_final_) {
    if (peer_abort_code_ != 0) {
      phase_ = Phase::kDone;
    } else if (!does_outlive_ || phase_ == Phase::kHandshake) {
      report_->error("the other end is gone");
      phase_ = Phase::kDone;
    } else if (phase_ != Phase::kOrphaned) {
      orphan();
    }
  }
  return worked;
}

void Peer::line_handle(const std::string& line) {
  char word[16] = "";
  uint64_t a = 0, b = 0, c = 0, d = 0, e = 0;
  sscanf(line.c_str(), "%15s %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, word, &a,
         &b, &c, &d, &e);
  std::string_view what = word;
  if (what == "region" && a < channels_.size()) {
    channels_[a].remote_control = {d, static_cast<uint32_t>(e)};
    if (channels_[a].sender)
      channels_[a].sender->target_set({b, static_cast<uint32_t>(c)}, channels_[a].remote_control);
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
    if (phase_ != Phase::kFailing) fail();
  } else if (what == "where") {
    for (uint32_t qp = 0; qp < channels_.size(); ++qp)
      if (channels_[qp].receiver)
        side_->send_line(fmt::format("consumed {} {}", qp, channels_[qp].receiver->consumed()));
  } else if (a < channels_.size()) {
    line_of_flow(word, channels_[a], b);
  }
}

void Peer::line_of_flow(const std::string& word, Channel& channel, uint64_t value) {
  if (word == "credit" && channel.sender) channel.sender->credit(value);
  if (word == "fence" && channel.receiver) channel.receiver->fence(value);
  if (word == "fin" && channel.receiver) channel.receiver->total_set(value);
  if (word == "consumed") stall_judge(channel.sender->plan().qp(), value);
}

// What READs, atomics and plain WRITEs did is known to their sender only, so it tells.
void Peer::fences_send() {
  for (uint32_t qp = 0; qp < channels_.size(); ++qp) {
    Channel& channel = channels_[qp];
    if (!channel.sender || channel.is_fin_sent) continue;
    const Sender& sender = *channel.sender;
    const Plan& plan = sender.plan();
    if (sender.is_done()) {
      side_->send_line(fmt::format("fin {} {}", qp, sender.total()));
      channel.is_fin_sent = true;
      continue;
    }
    uint64_t upto = sender.retired();
    bool is_due = plan.is_phased() ? upto % plan.phase_length() == 0
                                   : Plan::is_fetch(traffic_.op) || traffic_.op == Op::kMixed;
    if (!is_due || upto <= channel.fence_sent) continue;
    side_->send_line(fmt::format("fence {} {}", qp, upto));
    channel.fence_sent = upto;
  }
}

void Peer::phase_advance() {
  uint64_t now = now_ns();
  if (phase_ < Phase::kFailing && !report_->is_clean()) fail();
  switch (phase_) {
    case Phase::kHandshake:
      if (!is_ready_ || handshakes_ < traffic_.qps) break;
      phase_ = Phase::kRunning;
      started_ns_ = next_send_ns_ = last_progress_ns_ = now;
      break;
    case Phase::kRunning: {
      if (traffic_.duration_ms != 0 && now > started_ns_ + traffic_.duration_ms * 1'000'000ull)
        is_stopping_ = true;
      if (is_stopping_) senders_stop();
      bool all = std::all_of(channels_.begin(), channels_.end(), [](const Channel& channel) {
        return (!channel.sender || channel.is_fin_sent) &&
               (!channel.receiver || channel.receiver->is_done());
      });
      if (all && !is_done_sent_) {
        side_->send_line("done 0 0");
        is_done_sent_ = true;
      }
      if (!all || !is_peer_done_) break;
      phase_ = Phase::kQuiet;
      quiet_until_ns_ = now + traffic_.quiet_ms * 1'000'000ull;
      break;
    }
    case Phase::kQuiet:
      if (now < quiet_until_ns_) break;
      // Nobody has waited for the completions of the last credits: late on a busy machine.
      if (is_owed_completions() && now < quiet_until_ns_ + stall_ns_ / 2) break;
      finish();
      if (!report_->is_clean()) break;
      side_->send_line("final 0 0");
      phase_ = Phase::kFinal;
      last_progress_ns_ = now;
      break;
    case Phase::kFinal:
      if (is_peer_final_) phase_ = Phase::kDone;
      break;
    case Phase::kFailing:
      if (now < fail_until_ns_) break;
      side_->send_line(fmt::format("abort {} 0", report_->exit_code()));
      phase_ = Phase::kDone;
      break;
    case Phase::kOrphaned:
    case Phase::kDone:
      break;
  }
}

void Peer::fail() {
  phase_ = Phase::kFailing;
  fail_until_ns_ = now_ns() + linger_ns_;
}

// The other process is gone: each QP must say so, as with the stock library, and soon.
void Peer::orphan() {
  phase_ = Phase::kOrphaned;
  is_passive_ = false;
  last_progress_ns_ = now_ns();
  for (uint32_t qp = 0; qp < channels_.size(); ++qp) farewell_.add(qp, channels_[qp].queue.get());
}

void Peer::stop() {
  if (!is_stopping_) side_->send_line("stop 0 0");
  is_stopping_ = true;
}

void Peer::senders_stop() {
  for (Channel& channel : channels_)
    if (channel.sender) channel.sender->stop_soon();
}

void Peer::finish() {
  completions_handle();  // a passive end looks once: nothing may be there
  for (uint32_t qp = 0; qp < channels_.size(); ++qp) {
    Channel& channel = channels_[qp];
    channel.queue->finish();
    if (channel.sender) channel.sender->finish();
    if (!channel.receiver) continue;
    auto* counter =
        reinterpret_cast<uint64_t*>(control_.base + qp * kControlBytes + kControlCounter);
    channel.receiver->finish(*counter);
  }
  for (auto& queue : receive_queues_) queue->finish();
  if (inspect_) inspect_();
}

void Peer::stall_check() {
  uint64_t now = now_ns();
  uint64_t made = progress();
  if (made != last_progress_ || phase_ == Phase::kHandshake) {
    if (last_progress_ != 0) longest_gap_ns_ = std::max(longest_gap_ns_, now - last_progress_ns_);
    last_progress_ = made;
    last_progress_ns_ = now;
    is_where_sent_ = false;
    return;
  }
  if (phase_ == Phase::kQuiet || phase_ == Phase::kFailing || phase_ == Phase::kDone) return;
  uint64_t idle = now - last_progress_ns_;
  if (idle > stall_ns_ / 2 && !is_where_sent_) {
    side_->send_line("where 0 0");
    is_where_sent_ = true;
  }
  // Its sender says that all is complete, yet a message never took effect here.
  for (Channel& channel : channels_)
    if (channel.receiver && channel.receiver->is_total_known() && !channel.receiver->is_done() &&
        idle > stall_ns_ / 2 && report_->is_clean())
      report_->violation("notification-missing",
                         fmt::format("qp {}: {} consumed, the sender is through",
                                     channel.receiver->plan().qp(), channel.receiver->consumed()));
}

// The other end has consumed all that was posted here, yet completions are missing.
void Peer::stall_judge(uint32_t qp, uint64_t consumed_by_peer) {
  const Sender* sender = channels_[qp].sender.get();
  if (sender == nullptr || !is_where_sent_ || !report_->is_clean()) return;
  if (sender->retired() < sender->posted_count() && consumed_by_peer >= sender->posted_count())
    report_->violation("completion-missing",
                       fmt::format("qp {}: {} of {} complete, all consumed", qp, sender->retired(),
                                   sender->posted_count()));
}

bool Peer::is_stalled() const {
  return phase_ != Phase::kQuiet && phase_ != Phase::kDone &&
         now_ns() > last_progress_ns_ + stall_ns_;
}

int Peer::exit_code() const {
  int own = report_->exit_code();
  return own != kExitRight ? own : peer_abort_code_;
}

uint64_t Peer::progress() const {
  uint64_t sum = 0;
  for (const Channel& channel : channels_) {
    if (channel.sender) sum += channel.sender->retired();
    if (channel.receiver) sum += channel.receiver->consumed();
  }
  return sum;
}

uint64_t Peer::bytes_completed() const {
  uint64_t sum = 0;
  for (const Channel& channel : channels_)
    if (channel.sender) sum += channel.sender->bytes_retired();
  return sum;
}

bool Peer::is_everything_flushed() const {
  return std::all_of(channels_.begin(), channels_.end(),
                     [](const Channel& channel) { return channel.queue->pending() == 0; });
}

bool Peer::is_owed_completions() const {
  return std::any_of(channels_.begin(), channels_.end(),
                     [](const Channel& channel) { return channel.queue->has_signaled_pending(); });
}

uint64_t Peer::idle_until_ns() const {
  if (phase_ == Phase::kQuiet) return quiet_until_ns_;
  return traffic_.rate != 0 && phase_ == Phase::kRunning ? next_send_ns_ : 0;
}

std::string Peer::state_text() const {
  std::string text = fmt::format("phase {}\n", static_cast<int>(phase_));
  for (uint32_t qp = 0; qp < channels_.size(); ++qp) {
    const Channel& channel = channels_[qp];
    text += fmt::format("qp {}: {} send WRs pending", qp, channel.queue->pending());
    if (channel.sender)
      text += fmt::format(", sender posted {} retired {} credit {} total {}",
                          channel.sender->posted_count(), channel.sender->retired(),
                          channel.sender->credit_limit(), channel.sender->total());
    if (channel.receiver)
      text += fmt::format(", receiver consumed {} granted {} total {}",
                          channel.receiver->consumed(), channel.receiver->granted(),
                          channel.receiver->is_total_known() ? "known" : "unknown");
    text += '\n';
  }
  return text;
}

}  // namespace traffic
