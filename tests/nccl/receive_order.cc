// Judges the receive completions of one QP.
#include "receive_order.h"

#include <arpa/inet.h>

#include <algorithm>

namespace traffic::nccl {
namespace {
constexpr size_t kPastMax = 64;
}

int ReceiveOrder::post(uint64_t group, Transport* transport) {
  ReceiveRequest request{wr_id_of(posted_++), nullptr, 0, 0};
  waiting_.push_back(group);
  return transport->post_receive(transport_qp_, {&request, 1});
}

bool ReceiveOrder::check_request(uint64_t wr_id) {
  uint64_t serial = wr_id & 0xffffffffffu, lowest = posted_ - waiting_.size();
  const char* name = nullptr;
  if (wr_id != wr_id_of(serial) || serial >= posted_) {
    name = "receive-unknown";
  } else if (serial != lowest) {
    name = serial < lowest ? "receive-duplicate" : "receive-order";
  }
  if (name == nullptr) return true;
  report_->violation(name, fmt::format("connection {} qp {} wr_id {:#x}, waiting for {:#x}",
                                       layout_.connection(), qp_, wr_id, wr_id_of(lowest)));
  return false;
}

// Returns the name of the mistake that explains a wrong immediate.
const char* ReceiveOrder::name_of_wrong(uint32_t imm) const {
  auto is_its = [&](uint64_t group) { return layout_.imm(group) == imm; };
  if (!past_.empty() && is_its(past_.back())) return "notification-duplicate";
  if (std::any_of(waiting_.begin(), waiting_.end(), is_its)) return "notification-order";
  if (std::any_of(past_.begin(), past_.end(), is_its)) return "notification-duplicate";
  return "notification-unexpected";
}

std::optional<uint64_t> ReceiveOrder::completion(const ibv_wc& wc) {
  if (!check_request(wc.wr_id)) return std::nullopt;
  uint64_t group = waiting_.front();
  auto where = [&] {
    return fmt::format("connection {} qp {} group {}", layout_.connection(), qp_, group);
  };
  if (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM || (wc.wc_flags & IBV_WC_WITH_IMM) == 0) {
    report_->violation("receive-opcode", fmt::format("{}: opcode {} flags {:#x}", where(),
                                                     static_cast<int>(wc.opcode),
                                                     static_cast<unsigned>(wc.wc_flags)));
    return std::nullopt;
  }
  uint32_t imm = ntohl(wc.imm_data);
  if (imm != layout_.imm(group)) {
    report_->violation(name_of_wrong(imm), fmt::format("{}: immediate {:#x}, not {:#x}", where(),
                                                       imm, layout_.imm(group)));
    return std::nullopt;
  }
  if (wc.byte_len != layout_.notifying_length(group, qp_))
    report_->violation("receive-length", fmt::format("{}: {} bytes, not {}", where(), wc.byte_len,
                                                     layout_.notifying_length(group, qp_)));
  waiting_.pop_front();
  past_.push_back(group);
  if (past_.size() > kPastMax) past_.pop_front();
  return group;
}

}  // namespace traffic::nccl
