// One direction of a connection in a campaign: posting.
#include "campaign_flow.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace cxemu::test {

namespace {

constexpr size_t kArenaSize = 1 << 19;
constexpr uint32_t kRingBlocks = 256;
constexpr uint32_t kWqeBlocksMax = 6;
constexpr uint32_t kInlineMax = 200;
constexpr size_t kOpsMax = 200;
constexpr uint32_t kReceivesMax = 200;

// Cuts `size` into up to four lengths, none of them 0.
std::vector<uint32_t> lengths_make(uint32_t size, Random& random) {
  std::vector<uint32_t> lengths;
  for (uint32_t left = size; left > 0;) {
    const bool last = lengths.size() == 3 || random() % 3 == 0;
    const auto length = last ? left : static_cast<uint32_t>(1 + random() % left);
    lengths.push_back(length);
    left -= length;
  }
  return lengths;
}

uint32_t size_make(uint32_t mtu, Random& random) {
  switch (random() % 8) {
    case 0:
      return 0;
    case 1: {  // around a multiple of the MTU
      const auto edge = static_cast<uint32_t>(1 + random() % 4) * mtu;
      return edge + static_cast<uint32_t>(random() % 3) - 1;
    }
    case 2:
      return static_cast<uint32_t>(random() % (Flow::kMaxSize + 1));
    case 3:
      return static_cast<uint32_t>(random() % 10'000);
    default:
      return static_cast<uint32_t>(random() % 300);
  }
}

uint8_t opcode_make(Random& random) {
  static constexpr std::array<uint8_t, 16> kMix = {
      kWqeSend,     kWqeSend,     kWqeSendImm,     kWqeSendImm, kWqeWrite, kWqeWrite,
      kWqeWrite,    kWqeWriteImm, kWqeWriteImm,    kWqeRead,    kWqeRead,  kWqeRead,
      kWqeFetchAdd, kWqeFetchAdd, kWqeCompareSwap, kWqeNop};
  return kMix[random() % kMix.size()];
}

std::vector<uint8_t> inverted(std::vector<uint8_t> bytes) {
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(~byte);
  return bytes;
}

}  // namespace

// ---- Arena

Arena::Arena(Nic& nic, size_t size, Random& random) : mr(nic, size) {
  for (size_t at = 0; at < size; at += 8) {
    const uint64_t value = random();
    memcpy(mr.bytes.data() + at, &value, sizeof value);
  }
  must_ = mr.bytes;
}

std::optional<Arena::Region> Arena::take(uint32_t size) {
  const uint64_t capacity = must_.size();
  uint64_t at = head_;
  if (at % capacity + size + kGuard > capacity) at += capacity - at % capacity;
  const uint64_t end = at + size + kGuard;
  if (end - tail_ > capacity) return {};
  head_ = end;
  return Region{static_cast<uint32_t>(at % capacity), size, end};
}

void Arena::fill(const Region& region, const std::vector<uint8_t>& bytes) {
  std::copy(bytes.begin(), bytes.end(), mr.bytes.begin() + region.offset);
  accept(region);
}

void Arena::accept(const Region& region) {
  std::copy_n(mr.bytes.begin() + region.offset, region.size, must_.begin() + region.offset);
}

bool Arena::intact(const Region& region, uint32_t from) const {
  return memcmp(mr.bytes.data() + region.offset + from, must_.data() + region.offset + from,
                region.size + kGuard - from) == 0;
}

// ---- Flow

uint64_t Flow::SharedWord::value() const {
  uint64_t now;
  memcpy(&now, mr.bytes.data(), sizeof now);
  return now;
}

Flow::Flow(Judge& judge, Random& random, const FlowOptions& options, TestQp& from, TestQp& to,
           SharedWord& shared)
    : judge_(judge),
      random_(random),
      options_(options),
      from_(from),
      to_(to),
      shared_(shared),
      source_(from.nic, kSource, random),
      fetched_(from.nic, kArenaSize, random),
      target_(to.nic, kArenaSize, random),
      inbox_(to.nic, kArenaSize, random),
      readable_(to.nic, kSource, random),
      words_(to.nic, kWords * 8) {
  for (uint32_t i = 0; i < options.messages; i++) plans_.push_back(plan_make());
  for (const Plan& plan : plans_) {
    if (plan.takes_receive()) takers_.push_back(&plan);
  }
}

Plan Flow::plan_make() {
  Plan plan;
  plan.opcode = opcode_make(random_);
  if (plan.is_atomic()) {
    plan.size = 8;
  } else if (plan.opcode != kWqeNop) {
    plan.size = size_make(options_.mtu, random_);
  }
  for (const uint32_t length : lengths_make(plan.size, random_)) {
    plan.pieces.push_back({static_cast<uint32_t>(random_() % (kSource - length)), length});
  }
  plan.signaled = random_() % 2 == 0;
  plan.fence = random_() % 8 == 0;
  plan.solicited = random_() % 4 == 0;
  plan.is_inline =
      (plan.is_send() || plan.is_write()) && plan.size <= kInlineMax && random_() % 2 == 0;
  plan.imm_be = static_cast<uint32_t>(random_());
  plan.remote_offset = static_cast<uint32_t>(random_() % (kSource - plan.size));
  if (plan.opcode == kWqeFetchAdd) {
    plan.word = static_cast<uint32_t>(random_() % (kWords + 1));
    plan.swap_or_add = plan.word == kWords ? 1 : random_();
  } else if (plan.opcode == kWqeCompareSwap) {
    plan.word = static_cast<uint32_t>(random_() % kWords);
    plan.swap_or_add = random_();
    plan.compare = random_() % 2;  // for now, 1 means that it is to match
  }
  if (plan.takes_receive()) {
    plan.receive_room = random_() % 2 == 0 ? 0 : static_cast<uint32_t>(random_() % 100);
    const uint32_t placed = plan.is_send() ? plan.size : 0;
    plan.receive_lengths = lengths_make(placed + plan.receive_room, random_);
  }
  return plan;
}

std::vector<uint8_t> Flow::payload(const Plan& plan) const {
  std::vector<uint8_t> bytes;
  bytes.reserve(plan.size);
  if (plan.opcode == kWqeRead) {
    const auto from = readable_.mr.bytes.begin() + plan.remote_offset;
    bytes.assign(from, from + plan.size);
    return bytes;
  }
  for (const Plan::Piece& piece : plan.pieces) {
    const auto from = source_.mr.bytes.begin() + piece.offset;
    bytes.insert(bytes.end(), from, from + piece.length);
  }
  return bytes;
}

void Flow::send(uint32_t count) {
  for (; count > 0 && next_ < plans_.size() && !failed_; count--) {
    if (!post_one(plans_[next_])) return;
    next_++;
  }
}

void Flow::send_in_vain() {
  if (next_ < plans_.size() && post_one(plans_[next_])) next_++;
}

// Prepares what the operation needs at the other end. Returns false if there is no room.
bool Flow::remote_prepare(const Plan& plan, Op* op, SendWr* wr) {
  if (plan.is_write()) {
    const auto region = target_.take(plan.size);
    if (!region) return false;
    judge_.check(target_.intact(*region), where(*op), ": written to after it was done");
    op->region = *region;
    target_.fill(*region, inverted(payload(plan)));
    wr->remote_address = target_.mr.address() + region->offset;
    wr->rkey = target_.mr.key;
  } else if (plan.opcode == kWqeRead || plan.is_atomic()) {
    const auto region = fetched_.take(plan.size);
    if (!region) return false;
    judge_.check(fetched_.intact(*region), where(*op), ": written to after it was done");
    op->region = *region;
    wr->sges.clear();
    uint32_t at = region->offset;
    for (const Plan::Piece& piece : plan.pieces) {
      // An atomic has one part only.
      const uint32_t length = plan.is_atomic() ? plan.size : piece.length;
      wr->sges.push_back(fetched_.mr.sge(at, length));
      at += length;
      if (plan.is_atomic()) break;
    }
    fetched_.fill(*region, inverted(plan.is_atomic() ? std::vector<uint8_t>(8) : payload(plan)));
    wr->remote_address = readable_.mr.address() + plan.remote_offset;
    wr->rkey = readable_.mr.key;
  }
  if (!plan.is_atomic()) return true;
  const bool shared = plan.word == kWords;
  const TestMr& words = shared ? shared_.mr : words_;
  wr->remote_address = words.address() + (shared ? 0 : plan.word * 8);
  wr->rkey = words.key;
  if (shared) {
    shared_.posted++;
    return true;
  }
  uint64_t& value = word_values_[plan.word];
  op->original = value;
  if (plan.opcode == kWqeFetchAdd) {
    value += plan.swap_or_add;
  } else {
    const bool match = plan.compare != 0;
    wr->compare = match ? value : ~value;
    if (match) value = plan.swap_or_add;
  }
  return true;
}

bool Flow::post_one(const Plan& plan) {
  if (in_flight_.size() >= kOpsMax) return false;
  const uint16_t oldest = in_flight_.empty() ? from_.producer() : in_flight_.front().index;
  const auto used = static_cast<uint16_t>(from_.producer() - oldest);
  if (used + kWqeBlocksMax > kRingBlocks) return false;

  Op op = {.plan = &plan,
           .index = from_.producer(),
           .region = {},
           .original = 0,
           .take = 0,
           .signaled = true};
  // Sometimes there must be a completion, or the sender would never learn what is done.
  const bool signaled = plan.signaled || unsignaled_ >= 7 || next_ + 1 == plans_.size();
  SendWr wr = {.opcode = plan.opcode,
               .sges = {},
               .signaled = signaled,
               .solicited = plan.solicited,
               .fence = plan.fence,
               .inline_data = plan.is_inline,
               .imm_be = plan.imm_be,
               .swap_or_add = plan.swap_or_add};
  for (const Plan::Piece& piece : plan.pieces) {
    wr.sges.push_back(source_.mr.sge(piece.offset, piece.length));
  }
  if (!remote_prepare(plan, &op, &wr)) return false;
  if (plan.takes_receive()) op.take = takes_posted_++;
  op.signaled = signaled;
  unsignaled_ = signaled ? 0 : unsignaled_ + 1;
  from_.post_send(wr);
  in_flight_.push_back(op);
  bytes_ += plan.size;
  return true;
}

void Flow::receive(uint32_t count) {
  for (; count > 0 && receives_posted_ < takers_.size(); count--) {
    if (receives_.size() >= kReceivesMax) return;
    const Plan& plan = *takers_[receives_posted_];
    uint32_t total = 0;
    for (const uint32_t length : plan.receive_lengths) total += length;
    const auto region = inbox_.take(total);
    if (!region) return;
    judge_.check(inbox_.intact(*region), "receive ", receives_posted_,
                 ": written to after it was done");
    std::vector<uint8_t> bytes = inverted(plan.is_send() ? payload(plan) : std::vector<uint8_t>());
    bytes.resize(total, 0x5c);
    inbox_.fill(*region, bytes);
    std::vector<Sge> sges;
    uint32_t at = region->offset;
    for (const uint32_t length : plan.receive_lengths) {
      sges.push_back(inbox_.mr.sge(at, length));
      at += length;
    }
    to_.post_recv(sges);
    receives_.push_back({&plan, *region});
    receives_posted_++;
  }
}

std::string Flow::where(const Op& op) const {
  return "QP " + std::to_string(from_.number()) + ", WQE " + std::to_string(op.index) +
         ", opcode " + std::to_string(op.plan->opcode) + ", " + std::to_string(op.plan->size) +
         " bytes";
}

}  // namespace cxemu::test
