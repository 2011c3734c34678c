// What the connections of an end do while the traffic runs, and what is judged when it is over.
#include "engine.h"

#include <algorithm>

namespace traffic::nccl {
namespace {
constexpr uint32_t kSendQueueMax = 2 * kRing;
}  // namespace

Engine::Engine(const Options& options, bool is_client, EndTimes times, Transport* transport,
               SideChannel* side, Report* report)
    : End({options.duration_ms, options.quiet_ms, options.rate}, times, transport, side, report),
      options_(options),
      connections_(options.connections) {
  for (uint32_t i = 0; i < options.connections; ++i) connection_make(i, is_client);
  for (const Connection& connection : connections_) {
    if (connection.send) region_tell(connection.send->ring(), Region{});
    if (connection.recv) region_tell(connection.recv->data(), connection.recv->sizes());
  }
  handshake_end();
}

void Engine::connection_make(uint32_t index, bool is_client) {
  Connection& connection = connections_[index];
  uint32_t base = index * (options_.qps + 1);
  int direction = options_.bidirectional ? static_cast<int>(index % 2) : 0;
  std::vector<SendQueue*> queues;
  for (uint32_t qp = base; qp <= base + options_.qps; ++qp)
    queues.push_back(queue_add(kSendQueueMax, is_flush_qp(options_, qp)));
  Layout layout(options_, direction, index);
  if ((direction == 0) == is_client) {
    connection.send = std::make_unique<SendComm>(layout, base, queues, transport_, report_);
  } else {
    connection.recv = std::make_unique<RecvComm>(layout, base, queues, transport_, report_);
  }
}

void Engine::region_take(uint64_t index, RemoteRegion first, RemoteRegion second) {
  Connection& connection = connections_[index];
  if (connection.send) connection.send->remote_set(first, second);
  if (connection.recv) connection.recv->remote_set(first);
}

void Engine::line_take(std::string_view word, uint64_t index, uint64_t value) {
  if (word == "fin" && connections_[index].recv) connections_[index].recv->total_set(value);
}

void Engine::send_retired(uint32_t qp, const PostedSend& work) {
  if (work.kind != WorkKind::kMessage || !work.is_signaled) return;
  Connection& connection = connections_[qp / (options_.qps + 1)];
  if (connection.send) connection.send->share_done(work.number);
  if (connection.recv) connection.recv->flush_done(work.number);
}

void Engine::receive_completed(uint32_t qp, const ibv_wc& wc) {
  Connection& connection = connections_[qp / (options_.qps + 1)];
  if (connection.recv && !is_flush_qp(options_, qp)) {
    connection.recv->notification(qp % (options_.qps + 1), wc);
  } else {
    report_->violation("receive-unknown", fmt::format("wr_id {:#x}", wc.wr_id));
  }
}

bool Engine::traffic_advance() {
  bool worked = report_->is_clean() && grants_give();
  worked |= report_->is_clean() && groups_send();
  fins_send();
  return worked;
}

bool Engine::grants_give() {
  bool worked = false;
  for (Connection& connection : connections_)
    while (connection.recv && connection.recv->grant_next()) worked = true;
  return worked;
}

bool Engine::groups_send() {
  bool worked = false;
  for (uint32_t i = 0; i < connections_.size() && pace_.is_due(); ++i) {
    Connection& connection = connections_[next_connection_++ % connections_.size()];
    if (!connection.send || !connection.send->send_next()) continue;
    worked = true;
    pace_.took(1);
  }
  return worked;
}

void Engine::fins_send() {
  for (uint32_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    if (!connection.send || !connection.send->is_done() || connection.is_fin_sent) continue;
    side_->send_line(fmt::format("fin {} {}", i, connection.send->total()));
    connection.is_fin_sent = true;
  }
}

void Engine::senders_stop() {
  for (Connection& connection : connections_)
    if (connection.send) connection.send->stop();
}

bool Engine::is_complete() const {
  return std::ranges::all_of(connections_, [](const Connection& connection) {
    return connection.send ? connection.is_fin_sent : connection.recv->is_done();
  });
}

void Engine::memory_judge() {
  for (Connection& connection : connections_) {
    if (connection.send) connection.send->finish();
    if (connection.recv) connection.recv->finish();
  }
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

std::string Engine::flows_text() const {
  std::string text;
  for (uint32_t i = 0; i < connections_.size(); ++i) {
    const Connection& connection = connections_[i];
    text += fmt::format("connection {}:", i);
    if (connection.send)
      text += fmt::format(" sent {} completed {} of {}\n", connection.send->sent(),
                          connection.send->completed(), connection.send->total());
    if (connection.recv)
      text += fmt::format(" granted {} consumed {}, {} receives wait\n", connection.recv->granted(),
                          connection.recv->consumed(), connection.recv->receives_pending());
  }
  return text;
}

}  // namespace traffic::nccl
