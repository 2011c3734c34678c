#include "tests/fuzz/forger.h"

#include <algorithm>

namespace shift::fuzz {

namespace {

constexpr size_t kHeardMax = 64, kNamesMax = 16;
constexpr size_t kNameSize = 20;                            // of a QP, on the wire
constexpr size_t kTypeAt = 5, kFromAt = wire::kHeaderSize;  // the receiver's name follows
constexpr size_t kFieldsAt = kFromAt + 2 * kNameSize;

// The messages of coordinators have these numbers, and begin with two names.
bool is_of_coordinator(uint8_t type) {
  return (type >= 4 && type <= 15) || type == 18 || type == 19 || type == 22;
}

void put_name(const wire::QpName& name, uint8_t* at) {
  std::ranges::copy(name.gid.raw, at);
  for (int i = 0; i < 4; i++) at[16 + i] = static_cast<uint8_t>(name.qpn >> (8 * i));
}

}  // namespace

void Forger::hear(const wire::Message& message) {
  Bytes bytes;
  if (!wire::encode(message, bytes) || !is_of_coordinator(bytes[kTypeAt])) return;
  heard_.push_back(std::move(bytes));
  if (heard_.size() > kHeardMax) heard_.pop_front();
}

void Forger::samples_make(const wire::QpName& from, const wire::QpName& to) {
  constexpr auto kReady = wire::Ready::Kind::kReady;
  const wire::Message all[] = {
      wire::Bind{from, to, 1, 2, 1, {from.gid}, wire::Bind::kHasSqPsn, 0},
      wire::Offer{from, to, {1, 1}, 1, {from.gid, 1, 2, 5}},
      wire::Accept{from, to, {1, 1}, 1, wire::Accept::kAccepted, {from.gid, 1, 2, 5}},
      wire::Ready{from, to, {1, 1}, 1, kReady},
      wire::Members{from, to, 1, 1},
      wire::Drain{from, to, 0, 1, wire::Drain::Kind::kAsk},
      wire::Switch{from, to, 1, 1, wire::Switch::kFault},
      wire::Progress{from, to, 1, 1, 0, {1, 1}, 1, {{{1, 1}, 1, 2}}},
      wire::KeyQuery{from, to, 1, 1, 1, {0x20}},
      wire::KeyReply{from, to, 1, 1, {{0x20, 0x1020, true}}},
      wire::Refuse{from, to, 1, wire::RefuseReason::kGone},
      wire::Close{from, to},
      wire::KeysGone{from, to, 0, 1, false, {0x20}},
      wire::KeysForgotten{from, to, 1},
      wire::Avoid{from, to, 1, 1},
      wire::Nics{from, to, {{from.gid, 100}}},
      wire::Probe{from,
                  to,
                  wire::Probe::Kind::kOffer,
                  0,
                  0,
                  1,
                  wire::Probe::Result::kNothing,
                  {from.gid, 1, 2, 5}},
      wire::Probe{from, to, wire::Probe::Kind::kTold, 0, 0, 0, wire::Probe::Result::kFailed, {}}};
  for (const wire::Message& message : all)
    require(wire::encode(message, samples_.emplace_back()), "no memory");
}

void Forger::know(const wire::QpName& name) {
  if (names_.size() < kNamesMax) names_.push_back(name);
}

// One field gets a small number, one more or less, or what stands somewhere in another message.
void Forger::change(Bytes& bytes, Input& script) const {
  const uint8_t how = script.take<uint8_t>();
  const size_t at =
      kFieldsAt + script.take<uint8_t>() % std::max<size_t>(bytes.size() - kFieldsAt, 1);
  const uint8_t value = script.take<uint8_t>();
  if (at >= bytes.size()) return;
  const Bytes& other = value < heard_.size() ? heard_[value] : samples_[value % samples_.size()];
  constexpr size_t kSizes[] = {4, 16, 8, 4};
  switch (how % 4) {
    case 0:
      bytes[at] = value;
      break;
    case 1:
      bytes[at] = static_cast<uint8_t>(bytes[at] + 1);
      break;
    case 2:
      bytes[at] = static_cast<uint8_t>(bytes[at] - 1);
      break;
    default: {
      const size_t size = kSizes[how >> 6];
      const size_t from = kFromAt + (how >> 2) % (other.size() - kFromAt);
      const size_t count = std::min({size, other.size() - from, bytes.size() - at});
      std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(from), count,
                  bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
  }
}

// The first message of the wanted kind, seen from a place in the list, or the sample of that kind.
const Forger::Bytes& Forger::base(Input& script) const {
  const Bytes& sample = samples_[script.below(static_cast<uint8_t>(samples_.size()))];
  const size_t place = script.take<uint8_t>();
  for (size_t i = 0; i < heard_.size() && place < 192; i++) {
    const Bytes& one = heard_[(place + i) % heard_.size()];
    if (one[kTypeAt] == sample[kTypeAt]) return one;
  }
  return sample;
}

std::optional<wire::Message> Forger::forge(Input script) const {
  Bytes bytes = base(script);
  const uint8_t names = script.take<uint8_t>();
  if ((names & 1) != 0) put_name(names_[(names >> 1 & 7) % names_.size()], &bytes[kFromAt]);
  if ((names & 0x10) != 0)
    put_name(names_[(names >> 5 & 7) % names_.size()], &bytes[kFromAt + kNameSize]);
  for (int changes = script.below(5); changes > 0; changes--) change(bytes, script);
  wire::Message message;
  if (!wire::decode(bytes, message)) return std::nullopt;
  return message;
}

}  // namespace shift::fuzz
