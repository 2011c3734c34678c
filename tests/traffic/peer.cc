// The flows of an end: what the ends tell each other over the side channel, and what is judged when
// nothing moves or all is over. The data path is in peer_data.cc.
#include "peer.h"

#include <algorithm>

namespace traffic {
namespace {
constexpr uint32_t kCreditSlots = 32;
}  // namespace

Peer::Peer(const Traffic& traffic, bool is_client, EndTimes times, Transport* transport,
           SideChannel* side, Report* report)
    : End({traffic.duration_ms, traffic.quiet_ms, traffic.rate}, times, transport, side, report),
      traffic_(traffic) {
  channels_make(is_client);
  receives_post();
  for (uint32_t qp = 0; qp < traffic_.qps; ++qp) {
    const Channel& channel = channels_[qp];
    Region control = control_;
    control.base += qp * kControlBytes;
    region_tell(channel.receiver ? channel.receiver->target() : Region{}, control);
  }
  handshake_end();
}

void Peer::channels_make(bool is_client) {
  bool sends = is_client || traffic_.bidirectional;
  bool receives = !is_client || traffic_.bidirectional;
  is_passive_ =
      !sends && traffic_.credits == Credits::kTcp &&
      (traffic_.op == Op::kWrite || traffic_.op == Op::kRead || traffic_.op == Op::kAtomic);
  control_ = transport_->region_add(traffic_.qps * kControlBytes);
  for (uint32_t qp = 0; qp < traffic_.qps; ++qp) {
    Channel& channel = channels_.emplace_back();
    channel.queue = queue_add(traffic_.depth + kCreditSlots);
    Plan outgoing(traffic_, is_client ? 0 : 1, qp), incoming(traffic_, is_client ? 1 : 0, qp);
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

void Peer::region_take(uint64_t flow, RemoteRegion target, RemoteRegion control) {
  channels_[flow].remote_control = control;
  if (channels_[flow].sender) channels_[flow].sender->target_set(target, control);
}

void Peer::line_take(std::string_view word, uint64_t flow, uint64_t value) {
  Channel& channel = channels_[flow];
  if (word == "credit" && channel.sender) channel.sender->credit(value);
  if (word == "fence" && channel.receiver) channel.receiver->fence(value);
  if (word == "fin" && channel.receiver) channel.receiver->total_set(value);
  if (word == "consumed" && channel.sender) completions_judge(flow, value);
  if (word == "where" && channel.receiver)
    side_->send_line(fmt::format("consumed {} {}", flow, channel.receiver->consumed()));
}

// Only the sender knows when READs, atomics and plain WRITEs are complete, so it says so.
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

void Peer::senders_stop() {
  for (Channel& channel : channels_)
    if (channel.sender) channel.sender->stop_soon();
}

bool Peer::is_complete() const {
  return std::ranges::all_of(channels_, [](const Channel& channel) {
    return (!channel.sender || channel.is_fin_sent) &&
           (!channel.receiver || channel.receiver->is_done());
  });
}

void Peer::memory_judge() {
  for (uint32_t qp = 0; qp < channels_.size(); ++qp) {
    Channel& channel = channels_[qp];
    if (channel.sender) channel.sender->finish();
    if (!channel.receiver) continue;
    auto* counter =
        reinterpret_cast<uint64_t*>(control_.base + qp * kControlBytes + kControlCounter);
    channel.receiver->finish(*counter);
  }
  for (auto& queue : receive_queues_) queue->finish();
}

// Halfway to a stall, each end asks the other end what it has consumed.
void Peer::idle_watch(uint64_t idle_ns) {
  if (idle_ns <= stall_ns() / 2) {
    is_where_sent_ = false;
    return;
  }
  for (uint32_t qp = 0; qp < channels_.size() && !is_where_sent_; ++qp)
    if (channels_[qp].sender) side_->send_line(fmt::format("where {}", qp));
  is_where_sent_ = true;
  // The sender says that all is complete, but a message never took effect here.
  for (Channel& channel : channels_)
    if (channel.receiver && channel.receiver->is_total_known() && !channel.receiver->is_done() &&
        report_->is_clean())
      report_->violation("notification-missing",
                         fmt::format("qp {}: {} consumed, the sender is through",
                                     channel.receiver->plan().qp(), channel.receiver->consumed()));
}

// Complains when the other end has consumed all that was posted here, but completions are missing.
// Unsignaled WRs at the end of the queue have none: a sender without credit waits behind them.
void Peer::completions_judge(uint64_t qp, uint64_t consumed_by_peer) {
  const Sender& sender = *channels_[qp].sender;
  if (!is_where_sent_ || !report_->is_clean()) return;
  const bool is_owed = channels_[qp].queue->has_signaled_pending(WorkKind::kMessage);
  if (is_owed && consumed_by_peer >= sender.posted_count())
    report_->violation("completion-missing",
                       fmt::format("qp {}: {} of {} complete, all consumed", qp, sender.retired(),
                                   sender.posted_count()));
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

std::string Peer::flows_text() const {
  std::string text;
  for (uint32_t qp = 0; qp < channels_.size(); ++qp) {
    const Channel& channel = channels_[qp];
    text += fmt::format("qp {}:", qp);
    if (channel.sender)
      text += fmt::format(" sender posted {} retired {} credit {} total {}",
                          channel.sender->posted_count(), channel.sender->retired(),
                          channel.sender->credit_limit(), channel.sender->total());
    if (channel.receiver)
      text += fmt::format(" receiver consumed {} granted {} total {}", channel.receiver->consumed(),
                          channel.receiver->granted(),
                          channel.receiver->is_total_known() ? "known" : "unknown");
    text += '\n';
  }
  return text;
}

}  // namespace traffic
