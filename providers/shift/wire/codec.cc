// Encodes and decodes messages: with explicit little-endian fields, and one list of fields per
// message for both directions, so that the two cannot drift apart.
#include <algorithm>
#include <new>
#include <type_traits>
#include <utility>

#include "wire/messages.h"

namespace shift::wire {
namespace {

// The smallest encodings of list items, in bytes. They bound a list's count by the bytes that are
// there.
constexpr size_t kGidSize = 16;
constexpr size_t kRkeySize = 4;
constexpr size_t kKeyPairSize = 9;
constexpr size_t kResponderSize = 10;

// Appends fields to `out`, at the latest when it is ended; ok() is false after a list that is too
// long. One call of encode() owns it.
class Writer {
 public:
  explicit Writer(std::vector<uint8_t>& out) : out_(out) {}

  template <typename T>
  requires std::is_integral_v<T>
  void number(const T& value) {
    const auto bits = static_cast<std::make_unsigned_t<T>>(value);
    std::array<uint8_t, sizeof(T)> raw;
    for (size_t i = 0; i < sizeof(T); i++) raw[i] = static_cast<uint8_t>(bits >> (8 * i));
    bytes(raw);
  }
  void flag(const bool& value) { number<uint8_t>(value ? 1 : 0); }
  template <size_t N>
  void bytes(const std::array<uint8_t, N>& raw) {
    static_assert(N <= kPieces);
    if (filled_ + N > kPieces) end();
    std::copy_n(raw.data(), N, pieces_ + filled_);
    filled_ += N;
  }
  template <typename T, typename Item>
  void list(const std::vector<T>& items, size_t, Item item) {
    if (items.size() > kKeysMax) ok_ = false;
    if (!ok_) return;
    number(static_cast<uint32_t>(items.size()));
    for (const T& i : items) item(*this, i);
  }
  // Throws std::bad_alloc.
  void end() {
    out_.insert(out_.end(), pieces_, pieces_ + filled_);
    filled_ = 0;
  }
  bool ok() const { return ok_; }

 private:
  static constexpr size_t kPieces = 512;  // most messages fit

  std::vector<uint8_t>& out_;
  uint8_t pieces_[kPieces];
  size_t filled_ = 0;
  bool ok_ = true;
};

// Reads fields from `in`. After the first failure every read yields nothing. One call of decode()
// owns it.
class Reader {
 public:
  explicit Reader(std::span<const uint8_t> in) : in_(in) {}

  template <typename T>
  requires std::is_integral_v<T>
  void number(T& value) {
    std::make_unsigned_t<T> bits = 0;
    if (!take(sizeof(T))) return;
    for (size_t i = 0; i < sizeof(T); i++)
      bits |= static_cast<std::make_unsigned_t<T>>(
          static_cast<std::make_unsigned_t<T>>(in_[at_ + i]) << (8 * i));
    at_ += sizeof(T);
    value = static_cast<T>(bits);
  }
  void flag(bool& value) {
    uint8_t byte = 0;
    number(byte);
    if (byte > 1) ok_ = false;
    value = byte == 1;
  }
  template <size_t N>
  void bytes(std::array<uint8_t, N>& raw) {
    if (!take(raw.size())) return;
    for (size_t i = 0; i < raw.size(); i++) raw[i] = in_[at_ + i];
    at_ += raw.size();
  }
  template <typename T, typename Item>
  void list(std::vector<T>& items, size_t item_size, Item item) {
    uint32_t count = 0;
    number(count);
    if (count > kKeysMax || (in_.size() - at_) / item_size < count) ok_ = false;
    if (!ok_) return;
    items.resize(count);
    for (T& i : items) item(*this, i);
  }
  bool done() const { return ok_ && at_ == in_.size(); }

 private:
  bool take(size_t n) { return ok_ = ok_ && in_.size() - at_ >= n; }

  const std::span<const uint8_t> in_;
  size_t at_ = 0;
  bool ok_ = true;
};

// Each function names a message's fields once, for writing (M is const) and for reading.
template <typename M, typename T>
concept Is = std::is_same_v<std::remove_const_t<M>, T>;

template <typename IO, Is<QpName> M>
void fields(IO& io, M& m) {
  io.bytes(m.gid.raw);
  io.number(m.qpn);
}

template <typename IO, typename M>
void pair(IO& io, M& m) {
  fields(io, m.from);
  fields(io, m.to);
}

template <typename IO, Is<Hello> M>
void fields(IO& io, M& m) {
  io.bytes(m.instance.raw);
  io.bytes(m.identity.raw);
  io.bytes(m.target.raw);
  fields(io, m.want);
  fields(io, m.from);
  io.number(m.pair);
  io.number(m.key);
  io.bytes(m.nonce.raw);
  io.bytes(m.tag.raw);
}

// Enumerations travel as one byte.
template <typename Enum>
void enumeration(Writer& io, const Enum& value) {
  io.number(static_cast<uint8_t>(value));
}
template <typename Enum>
void enumeration(Reader& io, Enum& value) {
  uint8_t byte = 0;
  io.number(byte);
  value = static_cast<Enum>(byte);
}

template <typename IO, Is<HelloReply> M>
void fields(IO& io, M& m) {
  io.bytes(m.instance.raw);
  io.bytes(m.identity.raw);
  io.bytes(m.nonce.raw);
  fields(io, m.want);
  fields(io, m.from);
  enumeration(io, m.status);
  io.number(m.reason);
  io.bytes(m.tag.raw);
}

template <typename IO, Is<Confirm> M>
void fields(IO& io, M& m) {
  io.bytes(m.tag.raw);
}

template <typename IO, Is<Bind> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.sq_psn);
  io.number(m.rq_psn);
  io.number(m.members_up);
  io.list(m.members, kGidSize, [](IO& i, auto& gid) { i.bytes(gid.raw); });
  io.number(m.flags);
  io.number(m.epoch);
}

template <typename IO, Is<PathName> M>
void fields(IO& io, M& m) {
  io.number(m.leader);
  io.number(m.follower);
}

template <typename IO, Is<QpAddress> M>
void fields(IO& io, M& m) {
  io.bytes(m.gid.raw);
  io.number(m.qpn);
  io.number(m.psn);
  io.number(m.mtu);
}

template <typename IO, Is<Offer> M>
void fields(IO& io, M& m) {
  pair(io, m);
  fields(io, m.path);
  io.number(m.generation);
  fields(io, m.address);
}

template <typename IO, Is<Accept> M>
void fields(IO& io, M& m) {
  pair(io, m);
  fields(io, m.path);
  io.number(m.generation);
  io.number(m.status);
  fields(io, m.address);
}

template <typename IO, Is<Ready> M>
void fields(IO& io, M& m) {
  pair(io, m);
  fields(io, m.path);
  io.number(m.generation);
  enumeration(io, m.kind);
}

template <typename IO, Is<Members> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.seq);
  io.number(m.up);
}

template <typename IO, Is<Avoid> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.seq);
  io.number(m.members);
}

template <typename IO, Is<Nics> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.list(m.nics, kGidSize + 1, [](IO& i, auto& nic) {
    i.bytes(nic.gid.raw);
    i.number(nic.capacity);
  });
}

template <typename IO, Is<Probe> M>
void fields(IO& io, M& m) {
  pair(io, m);
  enumeration(io, m.kind);
  io.number(m.own);
  io.number(m.peer);
  io.number(m.number);
  enumeration(io, m.result);
  fields(io, m.address);
}

template <typename IO, Is<Drain> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.epoch);
  io.number(m.attempt);
  enumeration(io, m.kind);
}

template <typename IO, Is<Switch> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.epoch);
  io.number(m.seq);
  io.number(m.reason);
}

template <typename IO, Is<Progress> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.epoch);
  io.number(m.seq);
  io.number(m.notifications_received);
  fields(io, m.target);
  io.number(m.generation);
  io.list(m.responders, kResponderSize, [](IO& i, auto& responder) {
    fields(i, responder.path);
    i.number(responder.generation);
    i.number(responder.psn);
  });
}

template <typename IO, Is<KeyQuery> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.epoch);
  io.number(m.query_id);
  io.number(m.member);
  io.list(m.rkeys, kRkeySize, [](IO& i, auto& rkey) { i.number(rkey); });
}

template <typename IO, Is<KeyReply> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.query_id);
  io.number(m.member);
  io.list(m.keys, kKeyPairSize, [](IO& i, auto& key) {
    i.number(key.rkey);
    i.number(key.new_rkey);
    i.flag(key.found);
  });
}

template <typename IO, Is<KeysGone> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.epoch);
  io.number(m.number);
  io.flag(m.all);
  io.list(m.rkeys, kRkeySize, [](IO& i, auto& rkey) { i.number(rkey); });
}

template <typename IO, Is<KeysForgotten> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.number);
}

template <typename IO, Is<Refuse> M>
void fields(IO& io, M& m) {
  pair(io, m);
  io.number(m.epoch);
  enumeration(io, m.reason);
}

template <typename IO, Is<Close> M>
void fields(IO& io, M& m) {
  pair(io, m);
}

template <typename IO, Is<GidQuery> M>
void fields(IO& io, M& m) {
  io.number(m.nonce);
  io.bytes(m.gid.raw);
  io.number(m.key);
  io.bytes(m.tag.raw);
}

template <typename IO, Is<GidAnswer> M>
void fields(IO& io, M& m) {
  io.number(m.nonce);
  io.bytes(m.gid.raw);
  io.bytes(m.address.raw);
  io.bytes(m.tag.raw);
}

constexpr size_t kFlagsAt = 6;
constexpr size_t kLengthAt = 8;

void header_put(Writer& io, uint8_t type, uint64_t sequence) {
  io.number(kMagic);
  io.number(kVersion);
  io.number(type);
  io.number<uint16_t>(0);  // flags
  io.number<uint32_t>(0);  // length, filled in by encode()
  io.number(sequence);
}

struct Header {
  uint32_t magic = 0;
  uint8_t version = 0;
  uint8_t type = 0;
  uint16_t flags = 0;
  uint32_t length = 0;
  uint64_t sequence = 0;
};

Header header_get(std::span<const uint8_t> bytes) {
  Header h;
  Reader io(bytes.first(kHeaderSize));
  io.number(h.magic);
  io.number(h.version);
  io.number(h.type);
  io.number(h.flags);
  io.number(h.length);
  io.number(h.sequence);
  return h;
}

template <size_t Index = 0>
bool body_get(uint8_t type, std::span<const uint8_t> body, Message& out) {
  if constexpr (Index == std::variant_size_v<Message>) {
    return false;
  } else {
    if (type != Index + 1) return body_get<Index + 1>(type, body, out);
    std::variant_alternative_t<Index, Message> m;
    Reader io(body);
    fields(io, m);
    if (!io.done()) return false;
    out = std::move(m);
    return true;
  }
}

}  // namespace

const char* message_name(const Message& message) noexcept {
  constexpr const char* kNames[] = {"Hello",    "HelloReply", "Confirm",  "Bind",          "Offer",
                                    "Accept",   "Ready",      "Members",  "Drain",         "Switch",
                                    "Progress", "KeyQuery",   "KeyReply", "Refuse",        "Close",
                                    "GidQuery", "GidAnswer",  "KeysGone", "KeysForgotten", "Avoid",
                                    "Nics",     "Probe"};
  static_assert(std::size(kNames) == std::variant_size_v<Message>);
  return message.index() < std::size(kNames) ? kNames[message.index()] : "?";
}

bool encode(const Message& message, std::vector<uint8_t>& out, uint64_t sequence) noexcept {
  const size_t start = out.size();
  try {
    Writer io(out);
    header_put(io, static_cast<uint8_t>(message.index() + 1), sequence);
    std::visit([&](const auto& m) { fields(io, m); }, message);
    io.end();
    const size_t size = out.size() - start;
    if (io.ok() && size <= kMessageMax) {
      frame_mark(std::span(out).subspan(start), size, false);
      return true;
    }
  } catch (const std::exception&) {  // bad_alloc, or a variant that bad_alloc left valueless
  }
  out.resize(start);
  return false;
}

FrameState frame_peek(std::span<const uint8_t> bytes, size_t& size) noexcept {
  size = 0;
  if (bytes.size() < kHeaderSize) {
    // A stranger that speaks another protocol is known by its first bytes.
    for (size_t i = 0; i < bytes.size() && i < sizeof kMagic; i++)
      if (bytes[i] != static_cast<uint8_t>(kMagic >> (8 * i))) return FrameState::kMalformed;
    return FrameState::kIncomplete;
  }
  const Header h = header_get(bytes);
  const size_t seal = h.flags == kSealed ? kSealSize : 0;
  if (h.magic != kMagic || h.version != kVersion || (h.flags & ~kSealed) != 0 || h.type == 0 ||
      h.type > std::variant_size_v<Message> || h.length < kHeaderSize + seal ||
      h.length > kMessageMax + seal)
    return FrameState::kMalformed;
  size = h.length;
  return bytes.size() < size ? FrameState::kIncomplete : FrameState::kComplete;
}

bool decode(std::span<const uint8_t> frame, Message& out) noexcept {
  size_t size = 0;
  if (frame_peek(frame, size) != FrameState::kComplete || size != frame.size()) return false;
  if (frame_is_sealed(frame)) return false;
  try {
    return body_get(header_get(frame).type, frame.subspan(kHeaderSize), out);
  } catch (const std::bad_alloc&) {
    return false;
  }
}

uint64_t frame_sequence(std::span<const uint8_t> frame) noexcept {
  return header_get(frame).sequence;
}

bool frame_is_sealed(std::span<const uint8_t> frame) noexcept {
  return header_get(frame).flags == kSealed;
}

void frame_mark(std::span<uint8_t> frame, size_t size, bool sealed) noexcept {
  const uint16_t flags = sealed ? kSealed : 0;
  for (size_t i = 0; i < 2; i++) frame[kFlagsAt + i] = static_cast<uint8_t>(flags >> (8 * i));
  for (size_t i = 0; i < 4; i++) frame[kLengthAt + i] = static_cast<uint8_t>(size >> (8 * i));
}

}  // namespace shift::wire
