// Waiting for the rates of NICs.
#include "nic/shaper.h"

#include <algorithm>

#include "nic/bucket.h"
#include "nic/planted.h"

namespace cxemu {

namespace {

// A booking lasts about this long, so that turns are short and yet not taken for each packet.
constexpr uint64_t kTurnsPerSecond = 1000;
constexpr uint64_t kTurnMax = 64 << 10;
// A wish for capacity that is not renewed ends so long after the time of its booking.
constexpr uint64_t kWishNs = 2'000'000;
// A higher class may end before its wish does, and nothing tells.
constexpr uint64_t kYieldLookNs = 100'000;

uint64_t turn_bytes(const ShapeBucket& bucket) {
  return std::min(bucket.rate.load(std::memory_order_relaxed) / kTurnsPerSecond, kTurnMax);
}

}  // namespace

bool Booking::ready(ShapeBucket& bucket, int service_class, uint64_t size, uint64_t useful,
                    uint64_t now_ns) {
  const uint64_t rate = bucket.rate.load(std::memory_order_relaxed);
  if (rate != rate_) bytes_ = 0;  // the bookings are void
  rate_ = rate;
  if (rate == 0) return true;
  if (bytes_ < size) {
    const uint64_t yield_ns = bucket_yield_until_ns(bucket, service_class, now_ns);
    if (yield_ns != 0 && !CXEMU_PLANT(shape_class_ignored)) {
      due_ns_ = std::min(yield_ns, now_ns + kYieldLookNs);
      want(bucket, service_class, now_ns, now_ns);
      return false;
    }
    if (bytes_ > 0) bucket_return(bucket, rate, bytes_);
    bytes_ = std::max(size, useful);
    start_ns_ = bucket_book(bucket, rate, bytes_, now_ns);
  }
  due_ns_ = start_ns_;
  if (start_ns_ <= now_ns) return true;
  want(bucket, service_class, start_ns_, now_ns);
  return false;
}

void Booking::want(ShapeBucket& bucket, int service_class, uint64_t until_ns, uint64_t now_ns) {
  if (service_class == 0) return;  // nobody yields to it
  if (wanted_ns_ > std::max(until_ns, now_ns) + kWishNs / 2) return;
  wanted_ns_ = std::max(until_ns, now_ns) + kWishNs;
  if (CXEMU_PLANT(shape_wish_for_ever)) wanted_ns_ = UINT64_MAX;
  bucket.wanted_until_ns[static_cast<size_t>(service_class)].store(wanted_ns_,
                                                                   std::memory_order_relaxed);
}

void Booking::release(ShapeBucket& bucket, int service_class) {
  if (bytes_ > 0 && rate_ == bucket.rate.load(std::memory_order_relaxed) && rate_ != 0 &&
      !CXEMU_PLANT(shape_booking_kept))
    bucket_return(bucket, rate_, bytes_);
  bytes_ = 0;
  // Another process may have stored its own wish since.
  uint64_t own = wanted_ns_;
  if (own != 0)
    bucket.wanted_until_ns[static_cast<size_t>(service_class)].compare_exchange_strong(own, 0);
  wanted_ns_ = 0;
}

uint64_t Gate::turn(size_t size) const {
  return std::max<uint64_t>(turn_bytes(bucket_), size);
}

bool Gate::ready(uint32_t qpn, int service_class, size_t size, uint64_t now_ns, uint64_t pass) {
  Lane& lane = lanes_[static_cast<size_t>(service_class)];
  auto& waiting = lane.waiting;
  auto own = std::find_if(waiting.begin(), waiting.end(),
                          [=](const Waiter& waiter) { return waiter.qpn == qpn; });
  if (own != waiting.end()) own->pass = pass;
  if (!waiting.empty() && own != waiting.begin() && !CXEMU_PLANT(shape_turn_ignored)) {
    if (own == waiting.end()) waiting.push_back({qpn, pass});
    return false;
  }
  const bool over = lane.served == qpn && lane.turn_over(size, turn(size));
  if (over && waiting.size() > 1 && !CXEMU_PLANT(shape_turn_ignored)) {
    std::rotate(waiting.begin(), waiting.begin() + 1, waiting.end());
    lane.served = 0;
    lane.moved_up = pass;
    return false;
  }
  const uint64_t turns =
      CXEMU_PLANT(shape_turn_of_process) ? 1 : std::max<uint64_t>(waiting.size(), 1);
  if (lane.booking.ready(bucket_, service_class, size, turns * turn(size), now_ns)) return true;
  if (waiting.empty()) waiting.push_back({qpn, pass});
  return false;
}

void Gate::spend(uint32_t qpn, int service_class, size_t size) {
  Lane& lane = lanes_[static_cast<size_t>(service_class)];
  lane.booking.spend(size);
  lane.turn_spent = (lane.served == qpn ? lane.turn_spent : 0) + size;
  lane.served = qpn;
}

bool Gate::closes(int service_class, size_t size) const {
  return lanes_[static_cast<size_t>(service_class)].turn_over(size, turn(size));
}

void Gate::pass_end(uint64_t pass) {
  for (int i = 0; i < kShapeClasses; ++i) {
    Lane& lane = lanes_[static_cast<size_t>(i)];
    const uint32_t first = lane.waiting.empty() ? 0 : lane.waiting.front().qpn;
    std::erase_if(lane.waiting, [=](const Waiter& waiter) {
      return waiter.pass != pass && !CXEMU_PLANT(shape_turn_kept);
    });
    if (!lane.waiting.empty() && lane.waiting.front().qpn != first) lane.moved_up = pass;
    lane.ended = pass;
    if (lane.waiting.empty()) lane.booking.release(bucket_, i);
  }
}

uint64_t Gate::due_ns(uint64_t now_ns) const {
  uint64_t due_ns = UINT64_MAX;
  for (const Lane& lane : lanes_) {
    if (lane.waiting.empty()) continue;
    if (lane.moved_up == lane.ended) return now_ns;
    if (lane.booking.due_ns() > now_ns || CXEMU_PLANT(shape_waits_awake))
      due_ns = std::min(due_ns, lane.booking.due_ns());
  }
  return due_ns;
}

Gate* Shaper::gate(ShapeBucket& bucket) {
  const auto found = std::find_if(gates_.begin(), gates_.end(),
                                  [&](const auto& gate) { return &gate->bucket() == &bucket; });
  if (bucket.rate.load(std::memory_order_relaxed) == 0) return nullptr;
  if (found != gates_.end()) return found->get();
  gates_.push_back(std::make_unique<Gate>(bucket));
  return gates_.back().get();
}

bool Shaper::ready(FabricNic& from, FabricNic* to, uint32_t qpn, int service_class, size_t size) {
  // First the far end: whoever waits for that must not keep others from the near one.
  if (to != nullptr) {
    Gate* entry = gate(to->shape.entry);
    if (entry != nullptr && !entry->ready(qpn, service_class, size, now_ns_, pass_) &&
        !CXEMU_PLANT(shape_entry_open))
      return false;
  }
  Gate* own = gate(from.shape.tx);
  return own == nullptr || own->ready(qpn, service_class, size, now_ns_, pass_) ||
         CXEMU_PLANT(shape_sends_freely);
}

void Shaper::spend(FabricNic& from, FabricNic* to, uint32_t qpn, int service_class, size_t size) {
  if (Gate* own = gate(from.shape.tx); own != nullptr) own->spend(qpn, service_class, size);
  if (to == nullptr) return;
  if (Gate* entry = gate(to->shape.entry); entry != nullptr) entry->spend(qpn, service_class, size);
}

bool Shaper::closes(FabricNic& from, FabricNic* to, int service_class, size_t size) {
  if (const Gate* own = gate(from.shape.tx); own != nullptr && own->closes(service_class, size))
    return true;
  if (to == nullptr) return false;
  const Gate* entry = gate(to->shape.entry);
  return entry != nullptr && entry->closes(service_class, size);
}

void Shaper::charge(FabricNic& from, FabricNic* to, size_t size) {
  const auto take = [=, this](ShapeBucket& bucket) {
    const uint64_t rate = bucket.rate.load(std::memory_order_relaxed);
    if (rate != 0) bucket_book(bucket, rate, size, now_ns_);
  };
  take(from.shape.tx);
  if (to != nullptr) take(to->shape.entry);
}

Shaper::Arrivals* Shaper::arrivals_of(const FabricNic& nic) {
  for (const auto& one : arrivals_)
    if (one->nic == &nic) return one.get();
  return nullptr;
}

bool Shaper::paces(const FabricNic& nic) {
  if (nic.shape.rx.rate.load(std::memory_order_relaxed) != 0)
    return !CXEMU_PLANT(shape_receives_freely);
  // What waits since the NIC had a rate goes first.
  const Arrivals* arrivals = arrivals_of(nic);
  return arrivals != nullptr && std::any_of(arrivals->lanes.begin(), arrivals->lanes.end(),
                                            [](const auto& lane) { return lane.bytes > 0; });
}

void Shaper::arrived(FabricNic& nic, HeldPacket packet) {
  Arrivals* arrivals = arrivals_of(nic);
  if (arrivals == nullptr) {
    arrivals_.push_back(std::make_unique<Arrivals>());
    arrivals = arrivals_.back().get();
    arrivals->nic = &nic;
  }
  ArrivalLane& lane = arrivals->lanes[static_cast<size_t>(packet.service_class)];
  lane.bytes += packet.packet.size();
  lane.packets.push_back(std::move(packet));
}

void Shaper::hand_over(std::vector<HeldPacket>* due) {
  for (const auto& arrivals : arrivals_) {
    ShapeBucket& bucket = arrivals->nic->shape.rx;
    for (int i = kShapeClasses - 1; i >= 0; --i) {
      ArrivalLane& lane = arrivals->lanes[static_cast<size_t>(i)];
      while (!lane.packets.empty()) {
        const uint64_t size = lane.packets.front().packet.size();
        const uint64_t useful = std::min(turn_bytes(bucket), lane.bytes);
        if (!lane.booking.ready(bucket, i, size, useful, now_ns_)) break;
        lane.booking.spend(size);
        lane.bytes -= size;
        due->push_back(std::move(lane.packets.front()));
        lane.packets.pop_front();
      }
      if (lane.packets.empty()) lane.booking.release(bucket, i);
    }
  }
}

size_t Shaper::waiting_arrivals() const {
  size_t count = 0;
  for (const auto& arrivals : arrivals_)
    for (const ArrivalLane& lane : arrivals->lanes) count += lane.packets.size();
  return count;
}

void Shaper::pass_end() {
  for (const auto& gate : gates_) gate->pass_end(pass_);
}

uint64_t Shaper::due_ns() const {
  uint64_t due_ns = UINT64_MAX;
  for (const auto& gate : gates_) due_ns = std::min(due_ns, gate->due_ns(now_ns_));
  for (const auto& arrivals : arrivals_)
    for (const ArrivalLane& lane : arrivals->lanes)
      if (!lane.packets.empty()) due_ns = std::min(due_ns, lane.booking.due_ns());
  return due_ns;
}

}  // namespace cxemu
