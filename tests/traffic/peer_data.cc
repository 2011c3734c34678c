// The data path of a peer: completions, posting, credits.
#include <algorithm>
#include <cstring>

#include "peer.h"

namespace traffic {
namespace {
constexpr uint64_t kCreditSignalEvery = 8;
}

void Peer::send_retired(uint32_t qp, const PostedSend& work) {
  if (work.kind == WorkKind::kMessage) channels_[qp].sender->retire(work.number);
}

void Peer::receive_completed(uint32_t qp, const ibv_wc& wc) {
  Channel& channel = channels_[qp];
  if (channel.receives == nullptr || !channel.receiver) {
    report_->violation("receive-unknown", fmt::format("wr_id {:#x}", wc.wr_id));
    return;
  }
  channel.receiver->notification(wc, channel.receives);
}

bool Peer::traffic_advance() {
  receives_post();
  credit_words_read();
  bool worked = sends_post();
  worked |= credits_give();
  fences_send();
  return worked;
}

void Peer::receives_post() {
  for (auto& queue : receive_queues_)
    if (int error = queue->refill(); error != 0) report_->error(fmt::format("post_recv {}", error));
}

bool Peer::sends_post() {
  if (!report_->is_clean()) return false;
  bool worked = false;
  for (uint32_t i = 0; i < channels_.size() && pace_.is_due(); ++i) {
    uint32_t qp = next_qp_++ % traffic_.qps;
    Channel& channel = channels_[qp];
    if (!channel.sender || !channel.sender->may_post()) continue;
    worked |= batch_post(channel, qp, traffic_.batch);
    pace_.took(traffic_.batch);
  }
  return worked;
}

bool Peer::batch_post(Channel& channel, uint32_t qp, uint32_t count) {
  std::vector<SendRequest> requests;
  uint64_t first = channel.sender->posted_count();
  while (requests.size() < count && channel.sender->may_post() &&
         channel.queue->room() > requests.size()) {
    uint64_t number = channel.sender->posted_count();
    Op op = channel.sender->plan().op(number);
    SendRequest request = channel.sender->make_next();
    request.wr_id = channel.queue->wr_id_next(request.is_signaled);
    ibv_wc_opcode opcode = op == Op::kRead     ? IBV_WC_RDMA_READ
                           : op == Op::kAtomic ? IBV_WC_FETCH_ADD
                           : Plan::is_send(op) ? IBV_WC_SEND
                                               : IBV_WC_RDMA_WRITE;
    channel.queue->posted({request.wr_id, WorkKind::kMessage, request.is_signaled, opcode,
                           Plan::is_fetch(op) ? request.length : 0, number});
    requests.push_back(request);
  }
  if (requests.empty()) return false;
  size_t posted = 0;
  int error = transport_->post_send(qp, requests, &posted);
  for (size_t i = 0; i < posted; ++i) channel.sender->posted(first + i);
  if (error != 0)
    report_->error(fmt::format("post_send {} qp {} after {} of {}", strerror(error), qp, posted,
                               requests.size()));
  return true;
}

bool Peer::credits_give() {
  bool worked = false;
  uint64_t step = std::max(1u, traffic_.depth / 4);
  for (uint32_t qp = 0; qp < channels_.size(); ++qp) {
    Channel& channel = channels_[qp];
    if (!channel.receiver || channel.receiver->granted() < channel.granted_sent + step) continue;
    uint64_t granted = channel.receiver->granted();
    if (traffic_.credits == Credits::kTcp) {
      side_->send_line(fmt::format("credit {} {}", qp, granted));
    } else {
      if (channel.queue->room() == 0) continue;
      credit_post(channel, qp, granted);
    }
    channel.granted_sent = granted;
    worked = true;
  }
  return worked;
}

// Gives credit as clear-to-send messages do: by a small WRITE, mostly unsignaled, to memory that
// the sender polls. All these WRITEs read one word, so one that is executed late carries a newer
// value and does no harm.
void Peer::credit_post(Channel& channel, uint32_t qp, uint64_t granted) {
  std::byte* word = control_.base + qp * kControlBytes + kControlCredit + 8;
  std::memcpy(word, &granted, sizeof granted);
  SendRequest request{};
  request.is_signaled = traffic_.sig_all || ++channel.credits_posted % kCreditSignalEvery == 0;
  request.wr_id = channel.queue->wr_id_next(request.is_signaled);
  request.opcode = IBV_WR_RDMA_WRITE;
  request.local = word;
  request.length = sizeof granted;
  request.lkey = control_.lkey;
  request.remote = channel.remote_control.base + kControlCredit;
  request.rkey = channel.remote_control.rkey;
  channel.queue->posted(
      {request.wr_id, WorkKind::kCredit, request.is_signaled, IBV_WC_RDMA_WRITE, 0, granted});
  size_t posted = 0;
  if (int error = transport_->post_send(qp, {&request, 1}, &posted); error != 0)
    report_->error(fmt::format("post_send of a credit: {}", strerror(error)));
}

void Peer::credit_words_read() {
  if (traffic_.credits != Credits::kVerbs) return;
  for (uint32_t qp = 0; qp < channels_.size(); ++qp) {
    if (!channels_[qp].sender) continue;
    auto* word = reinterpret_cast<uint64_t*>(control_.base + qp * kControlBytes + kControlCredit);
    channels_[qp].sender->credit(__atomic_load_n(word, __ATOMIC_ACQUIRE));
  }
}

}  // namespace traffic
