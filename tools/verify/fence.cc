// Checks of the fence: a QP in ERR gives back all that it has not completed, in order, and neither
// sends nor takes anything any more (docs/protocol.md, step 4).
#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "rig.h"
#include "topics.h"
#include "trouble.h"

namespace shift::verify {
namespace {

constexpr uint64_t kSendMarker = 1000, kRecvMarker = 2000;
constexpr uint64_t kFirstPending = 3, kLastPending = 8;
constexpr uint64_t kFirstReceive = 101, kLastReceive = 108;
// The layer posts a missing receive marker's urging after so long, too.
constexpr milliseconds kUrgePause{2};
constexpr milliseconds kPatience{1000};
// How long stragglers may come after the marker.
constexpr milliseconds kQuiet{20};

// One end with requests that its peer does not take, as it has no receive for the first of them.
struct Stuck {
  explicit Stuck(const Subject& subject)
      : device(subject.nic), memory(device, 4096), end(device), peer(device) {
    connect(end, peer);
    const auto request = [this](uint64_t id, ibv_wr_opcode opcode, bool is_signaled) {
      end.post({.id = id,
                .opcode = opcode,
                .is_signaled = is_signaled,
                .from = memory.address(),
                .lkey = memory.lkey(),
                .size = 64,
                .to = memory.address(2048),
                .rkey = memory.rkey()});
    };
    // Two that are over, the first of them without a signal.
    request(1, IBV_WR_RDMA_WRITE, false);
    request(2, IBV_WR_RDMA_WRITE, true);
    end.complete(end.send_cq);
    for (uint64_t id = kFirstReceive; id <= kLastReceive; id++) end.receive(id);
    request(3, IBV_WR_SEND, false);
    request(4, IBV_WR_RDMA_WRITE, false);
    request(5, IBV_WR_SEND, true);
    request(6, IBV_WR_RDMA_READ, false);
    request(7, IBV_WR_RDMA_WRITE_WITH_IMM, false);
    request(8, IBV_WR_RDMA_WRITE, true);
  }

  Device device;
  Memory memory;
  End end, peer;
};

std::vector<uint64_t> ids_of(const std::vector<ibv_wc>& all) {
  std::vector<uint64_t> ids;
  for (const ibv_wc& one : all) ids.push_back(one.wr_id);
  return ids;
}

std::vector<uint64_t> range(uint64_t first, uint64_t last) {
  std::vector<uint64_t> ids;
  for (uint64_t id = first; id <= last; id++) ids.push_back(id);
  return ids;
}

std::string list(const std::vector<uint64_t>& ids) {
  std::string out;
  for (const uint64_t id : ids) out += (out.empty() ? "" : " ") + std::to_string(id);
  return out.empty() ? "none" : out;
}

bool has(const std::vector<ibv_wc>& all, uint64_t id) {
  return std::ranges::any_of(all, [id](const ibv_wc& one) { return one.wr_id == id; });
}

// Drains a queue until the marker comes, asking for it by ERR again as the layer does, and then for
// a moment longer.
struct Drained {
  std::vector<ibv_wc> all;
  bool was_urged = false;
};
Drained drain(End& end, ibv_cq* cq, uint64_t marker) {
  Drained drained;
  const auto start = Clock::now();
  while (!has(drained.all, marker) && ms_since(start) < static_cast<double>(kPatience.count())) {
    const auto more =
        End::poll(cq, kUrgePause, [marker](const auto& some) { return has(some, marker); });
    drained.all.insert(drained.all.end(), more.begin(), more.end());
    if (has(drained.all, marker) || ms_since(start) < 50) continue;
    end.to(IBV_QPS_ERR);
    drained.was_urged = true;
  }
  const auto late = End::poll(cq, kQuiet, [](const auto&) { return false; });
  drained.all.insert(drained.all.end(), late.begin(), late.end());
  return drained;
}

void post_markers(End& end) {
  end.post({.id = kSendMarker, .is_signaled = true});
  end.receive(kRecvMarker);
}

// The ids without the marker.
std::vector<uint64_t> flushed(const Drained& drained, uint64_t marker) {
  auto ids = ids_of(drained.all);
  std::erase(ids, marker);
  return ids;
}

}  // namespace

Outcome check_flush_all(const Subject& subject) {
  Stuck stuck(subject);
  stuck.end.to(IBV_QPS_ERR);
  post_markers(stuck.end);
  const Drained sent = drain(stuck.end, stuck.end.send_cq, kSendMarker);
  const Drained received = drain(stuck.end, stuck.end.recv_cq, kRecvMarker);
  for (const ibv_wc& one : sent.all) {
    if (one.status == IBV_WC_SUCCESS)
      return failure(text("request %u completes with success after ERR, though it was not executed",
                          static_cast<unsigned>(one.wr_id)));
  }
  const auto sends = flushed(sent, kSendMarker), receives = flushed(received, kRecvMarker);
  if (sends != range(kFirstPending, kLastPending)) {
    return failure(
        text("requests 3 to 8 were pending (5 and 8 with a signal), and ERR gave back: %s",
             list(sends).c_str()));
  }
  if (receives != range(kFirstReceive, kLastReceive)) {
    return failure(
        text("receives 101 to 108 were posted, and ERR gave back: %s", list(receives).c_str()));
  }
  return ok("6 pending requests, 4 of them without a signal, and 8 receives came back in order");
}

Outcome check_marker_last(const Subject& subject) {
  Stuck stuck(subject);
  stuck.end.to(IBV_QPS_ERR);
  post_markers(stuck.end);
  const auto start = Clock::now();
  const Drained sent = drain(stuck.end, stuck.end.send_cq, kSendMarker);
  const Drained received = drain(stuck.end, stuck.end.recv_cq, kRecvMarker);
  const double took = ms_since(start) - 2 * static_cast<double>(kQuiet.count());
  for (const auto& [name, drained, marker] :
       {std::tuple{"send", &sent, kSendMarker}, std::tuple{"receive", &received, kRecvMarker}}) {
    if (!has(drained->all, marker))
      return failure(text("the marker in the %s queue did not come out within %lld ms", name,
                          static_cast<long long>(kPatience.count())));
    if (drained->all.back().wr_id != marker) {
      return failure(text("completion %u of the %s queue came after the marker's",
                          static_cast<unsigned>(drained->all.back().wr_id), name));
    }
  }
  if (sent.was_urged || received.was_urged) {
    return coped_with(
        text("the marker of the %s queue came only when ERR was entered again",
             sent.was_urged ? "send" : "receive"),
        "The layer enters ERR again when a marker does not come, so each switch takes "
        "some milliseconds longer.");
  }
  Outcome good = ok(text("both markers came last, %.1f ms after ERR", std::max(took, 0.0)));
  good.figures = {{"drain_ms", std::max(took, 0.0)}};
  return good;
}

Outcome check_err_shuts(const Subject& subject) {
  Device device(subject.nic);
  Memory memory(device, 4096);
  End end(device), peer(device);
  const Address to_end = end.address(), to_peer = peer.address();
  end.connect(to_peer, {.timeout = 12, .retries = 1});
  peer.connect(to_end);
  const Request write{.id = 1,
                      .is_signaled = true,
                      .from = memory.address(),
                      .lkey = memory.lkey(),
                      .size = 64,
                      .to = memory.address(2048),
                      .rkey = memory.rkey()};
  *memory.at() = 1;
  end.post(write);
  end.complete(end.send_cq);
  peer.to(IBV_QPS_ERR);
  *memory.at() = 2;
  end.post(write);
  const auto got = End::poll(end.send_cq, kPatience, [](const auto& all) { return !all.empty(); });
  std::this_thread::sleep_for(kQuiet);
  const int seen = *static_cast<volatile uint8_t*>(memory.at(2048));
  if (seen != 1) return failure("a WRITE changed memory after the QP that takes it was in ERR");
  if (!got.empty() && got.front().status == IBV_WC_SUCCESS)
    return failure("a WRITE was acknowledged by a QP in ERR");
  if (got.empty()) return ok("a WRITE to a QP in ERR changes nothing");
  return ok(text("a WRITE to a QP in ERR changes nothing; its sender gets: %s",
                 ibv_wc_status_str(got.front().status)));
}

Outcome check_error_event(const Subject& subject) {
  Device device(subject.nic);
  End end(device, {.has_channel = true}), peer(device);
  connect(end, peer);
  fcntl(end.channel->fd, F_SETFL, fcntl(end.channel->fd, F_GETFL) | O_NONBLOCK);
  succeed(ibv_req_notify_cq(end.send_cq, 1), "ibv_req_notify_cq");
  end.post({.id = 1, .opcode = IBV_WR_SEND});  // nobody takes it
  end.to(IBV_QPS_ERR);
  pollfd one{end.channel->fd, POLLIN, 0};
  if (::poll(&one, 1, static_cast<int>(kPatience.count())) == 1)
    return ok("a failed request wakes a thread that waits for errors only");
  const char* const seen =
      "a failed request without a signal wakes nobody who waits for errors only";
  if (!device.is_soft_roce()) return failure(seen);
  return coped_with(
      seen,
      "This is soft-RoCE, where the layer waits for all completions: its thread wakes "
      "up more often.");
}

}  // namespace shift::verify
