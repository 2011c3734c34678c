// Executes WRs by copying memory, and spoils one of them.
#include "fake_fabric.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "sender.h"

namespace traffic {
namespace {

constexpr uint32_t kFirstQpNumber = 0x100;

bool is_notifying(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool is_send(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}
ibv_wc_opcode wc_opcode(ibv_wr_opcode opcode) {
  if (opcode == IBV_WR_RDMA_READ) return IBV_WC_RDMA_READ;
  if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) return IBV_WC_FETCH_ADD;
  return is_send(opcode) ? IBV_WC_SEND : IBV_WC_RDMA_WRITE;
}

}  // namespace

const char* spoil_name(Spoil spoil) {
  static const char* const kNames[] = {"nothing",
                                       "flip-byte",
                                       "stray-byte",
                                       "write-lost",
                                       "writes-swapped",
                                       "ghost-target",
                                       "ghost-receive",
                                       "ghost-local",
                                       "notification-lost",
                                       "notification-twice",
                                       "notifications-swapped",
                                       "imm-wrong",
                                       "receive-length",
                                       "receive-opcode",
                                       "receive-wrong",
                                       "completion-lost",
                                       "completion-twice",
                                       "completions-swapped",
                                       "completion-unsignaled",
                                       "completion-foreign",
                                       "completion-qp-num",
                                       "completion-opcode",
                                       "read-length",
                                       "read-flip",
                                       "atomic-twice",
                                       "completions-stop",
                                       "credits-stop",
                                       "error-overtakes",
                                       "error-twice",
                                       "error"};
  static_assert(std::size(kNames) == static_cast<size_t>(Spoil::kCount));
  return kNames[static_cast<size_t>(spoil)];
}

class FakeEnd : public Transport, public SideChannel {
 public:
  FakeEnd(FakeFabric* fabric, uint32_t qps, bool is_srq)
      : fabric_(fabric), is_srq_(is_srq), receives_(is_srq ? 1 : qps) {}
  ~FakeEnd() override {
    for (void* memory : memory_) free(memory);
  }

  Region region_add(size_t size) override {
    size = (size + 4095) & ~size_t{4095};
    void* base = aligned_alloc(4096, size);
    std::memset(base, 0, size);
    memory_.push_back(base);
    uint32_t key = static_cast<uint32_t>(memory_.size());
    return {static_cast<std::byte*>(base), size, key, key | 0x8000};
  }
  int post_send(uint32_t qp, std::span<const SendRequest> requests, size_t* posted) override {
    for (const SendRequest& request : requests) fabric_->execute(this, qp, request);
    *posted = requests.size();
    return 0;
  }
  int post_receive(uint32_t qp, std::span<const ReceiveRequest> requests) override {
    auto& queue = receives_[is_srq_ ? 0 : qp];
    queue.insert(queue.end(), requests.begin(), requests.end());
    return 0;
  }
  int poll(std::span<ibv_wc> out) override {
    if (fabric_->ghost_ && fabric_->ghost_->delay-- == 0) {
      std::memcpy(fabric_->ghost_->where, fabric_->ghost_->bytes.data(),
                  fabric_->ghost_->bytes.size());
      fabric_->ghost_.reset();
    }
    size_t count = std::min(out.size(), completions_.size());
    std::copy_n(completions_.begin(), count, out.begin());
    completions_.erase(completions_.begin(), completions_.begin() + static_cast<ptrdiff_t>(count));
    return static_cast<int>(count);
  }
  uint32_t qp_number(uint32_t qp) const override { return kFirstQpNumber + qp; }

  void send_line(std::string_view line) override { other_->lines_.emplace_back(line); }
  std::optional<std::string> receive_line() override {
    if (lines_.empty()) return std::nullopt;
    std::string line = lines_.front();
    lines_.pop_front();
    return line;
  }
  bool is_closed() const override { return false; }

  std::deque<ReceiveRequest>& receives(uint32_t qp) { return receives_[is_srq_ ? 0 : qp]; }

  FakeEnd* other_ = nullptr;
  std::deque<ibv_wc> completions_;

 private:
  FakeFabric* const fabric_;
  const bool is_srq_;
  std::vector<std::deque<ReceiveRequest>> receives_;
  std::deque<std::string> lines_;
  std::vector<void*> memory_;
};

FakeFabric::FakeFabric(uint32_t qps, bool is_srq, Spoil spoil, uint64_t spoil_at)
    : spoil_(spoil), countdown_(spoil_at) {
  for (auto& end : ends_) end = std::make_unique<FakeEnd>(this, qps, is_srq);
  ends_[0]->other_ = ends_[1].get();
  ends_[1]->other_ = ends_[0].get();
}

FakeFabric::~FakeFabric() = default;
Transport* FakeFabric::transport(int end) {
  return ends_[end].get();
}
SideChannel* FakeFabric::side(int end) {
  return ends_[end].get();
}

bool FakeFabric::hit(Spoil spoil) {
  if (spoil != spoil_ || was_spoiled_ || countdown_-- != 0) return false;
  was_spoiled_ = true;
  return true;
}

void FakeFabric::execute(FakeEnd* from, uint32_t qp, SendRequest request) {
  bool is_swappable = request.opcode == IBV_WR_RDMA_WRITE && request.length != 0;
  if (from == ends_[1].get() && is_swappable && hit_from_now(Spoil::kCreditsStop)) return;
  bool lost = is_swappable && hit(Spoil::kWriteLost);
  if (!lost && is_swappable && hit(Spoil::kWritesSwapped)) {
    // Executed only after the next WRITE to the same place.
    held_ = {from, qp, request, {request.local, request.local + request.length}};
  } else if (!lost) {
    deliver(from, qp, request);
    if (spoil_ == Spoil::kWritesSwapped && held_ && held_->request.remote == request.remote) {
      std::copy(held_->payload.begin(), held_->payload.end(),
                reinterpret_cast<std::byte*>(request.remote));
      held_.reset();
    }
  }
  complete(from, qp, request);
}

void FakeFabric::deliver(FakeEnd* from, uint32_t qp, const SendRequest& request) {
  auto* remote = reinterpret_cast<std::byte*>(request.remote);
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    std::memcpy(request.local, remote, 8);
    uint64_t value;
    std::memcpy(&value, remote, 8);
    value += request.add * (hit(Spoil::kAtomicTwice) ? 2 : 1);
    std::memcpy(remote, &value, 8);
    return;
  }
  if (request.opcode == IBV_WR_RDMA_READ) {
    std::memcpy(request.local, remote, request.length);
    if (request.length != 0 && hit(Spoil::kReadFlip))
      request.local[request.length / 2] ^= std::byte{1};
    if (request.length != 0 && hit(Spoil::kGhostLocal))
      ghost_ = {request.local, {remote, remote + request.length}, 3 + ghost_later_};
    return;
  }
  if (!is_send(request.opcode)) {
    std::memcpy(remote, request.local, request.length);
    if (request.length != 0 && hit(Spoil::kFlipByte)) remote[request.length - 1] ^= std::byte{0x80};
    if (remote != nullptr && hit(Spoil::kStrayByte)) remote[request.length] ^= std::byte{1};
    if (request.length != 0 && hit(Spoil::kGhostTarget))
      ghost_ = {remote, {remote, remote + request.length}, 6 + ghost_later_};
  }
  if (!is_notifying(request.opcode)) return;
  if (hit(Spoil::kNotificationLost)) return;
  if (hit(Spoil::kNotificationsSwapped)) {
    held_ = {from, qp, request, {request.local, request.local + request.length}};
    return;
  }
  notify(from->other_, qp, request);
  if (hit(Spoil::kNotificationTwice)) notify(from->other_, qp, request);
  if (spoil_ == Spoil::kNotificationsSwapped && held_ && held_->qp == qp && held_->end == from) {
    held_->request.local = held_->payload.data();
    notify(from->other_, qp, held_->request);
    held_.reset();
  }
}

void FakeFabric::notify(FakeEnd* to, uint32_t qp, const SendRequest& request) {
  auto& queue = to->receives(qp);
  if (queue.empty()) return;  // spoiled notifications may find no receive
  ReceiveRequest receive = queue.front();
  queue.pop_front();
  if (is_send(request.opcode)) {
    std::memcpy(receive.local, request.local, request.length);
    if (hit(Spoil::kGhostReceive))
      ghost_ = {receive.local, {receive.local, receive.local + request.length}, 6 + ghost_later_};
  }
  ibv_wc wc{};
  wc.wr_id = receive.wr_id;
  if (hit(Spoil::kReceiveWrong) && !queue.empty()) wc.wr_id = queue.front().wr_id;
  wc.opcode = is_send(request.opcode) ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  if (hit(Spoil::kReceiveOpcode))
    wc.opcode = wc.opcode == IBV_WC_RECV ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
  wc.byte_len = request.length + (hit(Spoil::kReceiveLength) ? 1 : 0);
  wc.qp_num = kFirstQpNumber + qp;
  if (request.opcode != IBV_WR_SEND) {
    wc.wc_flags = IBV_WC_WITH_IMM;
    wc.imm_data = htonl(request.imm + (hit(Spoil::kImmWrong) ? 1 : 0));
  }
  to->completions_.push_back(wc);
}

void FakeFabric::complete(FakeEnd* from, uint32_t qp, const SendRequest& request) {
  bool emit = request.is_signaled || hit(Spoil::kCompletionUnsignaled);
  if (!emit || hit(Spoil::kCompletionLost) || hit_from_now(Spoil::kCompletionsStop)) return;
  ibv_wc wc{};
  wc.wr_id = request.wr_id;
  if (hit(Spoil::kCompletionForeign)) wc.wr_id += 1u << 20;
  wc.opcode = wc_opcode(request.opcode);
  if (hit(Spoil::kCompletionOpcode)) wc.opcode = IBV_WC_BIND_MW;
  wc.qp_num = kFirstQpNumber + qp + (hit(Spoil::kCompletionQpNum) ? 1 : 0);
  bool is_fetch = wc.opcode == IBV_WC_RDMA_READ || wc.opcode == IBV_WC_FETCH_ADD;
  wc.byte_len = is_fetch ? request.length + (hit(Spoil::kReadLength) ? 4 : 0) : 0;
  const bool is_overtaking =
      spoil_ == Spoil::kErrorOvertakes && held_completion_ && held_completion_->qp_num == wc.qp_num;
  const bool is_twice = hit(Spoil::kErrorTwice);
  if (is_overtaking || is_twice || hit(Spoil::kError)) wc.status = IBV_WC_RETRY_EXC_ERR;
  if (!held_completion_ && (hit(Spoil::kCompletionsSwapped) || hit(Spoil::kErrorOvertakes))) {
    held_completion_ = wc;
    return;
  }
  from->completions_.push_back(wc);
  if (is_twice || hit(Spoil::kCompletionTwice)) from->completions_.push_back(wc);
  if (held_completion_ && held_completion_->qp_num == wc.qp_num) {
    from->completions_.push_back(*held_completion_);
    held_completion_.reset();
  }
}

}  // namespace traffic
