// Judges which receive WRs are consumed, and keeps enough of them posted.
#include "receive_queue.h"

#include "pattern.h"

namespace traffic {

ReceiveQueue::ReceiveQueue(uint32_t post_qp, uint32_t posted_max, uint32_t buffer_size,
                           bool is_shared, uint64_t poison_seed, Transport* transport,
                           Report* report)
    : post_qp_(post_qp),
      posted_max_(posted_max),
      buffers_(posted_max * 2),
      buffer_size_(buffer_size),
      is_shared_(is_shared),
      poison_seed_(poison_seed),
      transport_(transport),
      report_(report),
      region_(transport->region_add(size_t{posted_max} * 2 * buffer_size)) {
  for (uint32_t i = 0; i < buffers_; ++i) {
    auto buffer = buffer_of(i);
    pattern_fill(key_of(buffer.data()), buffer);
  }
}

uint64_t ReceiveQueue::key_of(const std::byte* buffer) const {
  uint64_t index = static_cast<uint64_t>(buffer - region_.base) / buffer_size_;
  return pattern_key(poison_seed_, Domain::kReceivePoison, 0, post_qp_, index);
}

ptrdiff_t ReceiveQueue::touched_from(std::span<const std::byte> buffer, size_t from) const {
  auto wrong = pattern_mismatch(key_of(buffer.data()), buffer.subspan(from), from);
  return wrong ? static_cast<ptrdiff_t>(from + *wrong) : -1;
}

void ReceiveQueue::check_intact(uint64_t serial, const char* when) {
  auto buffer = buffer_of(serial);
  if (ptrdiff_t at = touched_from(buffer, 0); at >= 0) {
    report_->violation("ghost-write", fmt::format("receive buffer {} of qp {} at byte {} {}",
                                                  serial % buffers_, post_qp_, at, when));
    pattern_fill(key_of(buffer.data()), buffer);
  }
}

int ReceiveQueue::refill() {
  std::vector<ReceiveRequest> requests;
  // On an SRQ the oldest receive may wait long; its buffer must not be posted twice.
  while (posted_count_ - consumed_count_ + requests.size() < posted_max_ &&
         posted_count_ + requests.size() - lowest_waiting_ < buffers_) {
    uint64_t serial = posted_count_ + requests.size();
    check_intact(serial, "before it was posted again");
    auto buffer = buffer_of(serial);
    requests.push_back({wr_id_of(serial), buffer.data(), buffer_size_, region_.lkey});
  }
  if (requests.empty()) return 0;
  posted_count_ += requests.size();
  return transport_->post_receive(post_qp_, requests);
}

std::span<std::byte> ReceiveQueue::consume(uint64_t wr_id) {
  uint64_t serial = wr_id & 0xffffffffffu;
  auto refuse = [&](const char* name) {
    report_->violation(name, fmt::format("qp {} wr_id {:#x}, waiting for {:#x}", post_qp_, wr_id,
                                         wr_id_of(lowest_waiting_)));
    return std::span<std::byte>{};
  };
  if (wr_id != wr_id_of(serial) || serial >= posted_count_) return refuse("receive-unknown");
  if (serial < lowest_waiting_ || consumed_above_.contains(serial))
    return refuse("receive-duplicate");
  if (!is_shared_ && serial != lowest_waiting_)
    refuse("receive-order");  // go on, so that the content is judged, too
  consumed_above_.insert(serial);
  ++consumed_count_;
  while (!consumed_above_.empty() && *consumed_above_.begin() == lowest_waiting_) {
    consumed_above_.erase(consumed_above_.begin());
    ++lowest_waiting_;
  }
  return buffer_of(serial);
}

void ReceiveQueue::release(std::span<std::byte> buffer, size_t used) {
  // Poisons only what the message used, so that a wrong byte beyond it is still found later.
  pattern_fill(key_of(buffer.data()), buffer.first(used));
}

void ReceiveQueue::finish() {
  for (uint32_t i = 0; i < buffers_; ++i) check_intact(i, "at the end");
}

}  // namespace traffic
