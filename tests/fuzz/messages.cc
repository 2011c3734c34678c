// What decodes must be encoded to the very bytes that it came from, so each message has one form on
// the wire. What is sealed opens to what it was, and nothing else opens.
#include "wire/messages.h"

#include <array>
#include <variant>
#include <vector>

#include "net/seal.h"
#include "tests/fuzz/targets.h"

namespace shift::fuzz {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kTypeAt = 5;

struct Keys {
  std::array<uint8_t, 32> secret{};
  wire::Instance ours, theirs;
  Keys() {
    secret.fill(7);
    ours.raw.fill(1);
    theirs.raw.fill(2);
  }
};

// A header that fits the body, which is the rest of the input.
Bytes framed(Input& in) {
  Bytes bytes;
  const uint8_t type = in.take<uint8_t>();
  const uint16_t flags = in.below(4) == 0 ? wire::kSealed : 0;
  const auto sequence = in.take<uint64_t>();
  if (!wire::encode(wire::Close{}, bytes, sequence)) abort();
  bytes.resize(wire::kHeaderSize);
  const auto body = in.rest();
  bytes.insert(bytes.end(), body.begin(), body.end());
  bytes[kTypeAt] = type;
  wire::frame_mark(bytes, bytes.size(), flags != 0);
  return bytes;
}

template <size_t Index = 0>
wire::Message sample(size_t type) {
  if constexpr (Index + 1 == std::variant_size_v<wire::Message>) {
    return std::variant_alternative_t<Index, wire::Message>{};
  } else {
    if (type == Index) return std::variant_alternative_t<Index, wire::Message>{};
    return sample<Index + 1>(type);
  }
}

// A valid message of any type, with one item in its list, of which a few bytes are changed.
Bytes poked(Input& in) {
  wire::Message message = sample(in.below(std::variant_size_v<wire::Message>));
  if (auto* bind = std::get_if<wire::Bind>(&message)) bind->members.resize(1);
  if (auto* progress = std::get_if<wire::Progress>(&message)) progress->responders.resize(1);
  if (auto* query = std::get_if<wire::KeyQuery>(&message)) query->rkeys.resize(1);
  if (auto* reply = std::get_if<wire::KeyReply>(&message)) reply->keys.resize(1);
  if (auto* gone = std::get_if<wire::KeysGone>(&message)) gone->rkeys.resize(1);
  Bytes bytes;
  if (!wire::encode(message, bytes, in.take<uint8_t>())) abort();
  while (!in.ended()) {
    const uint8_t at = in.take<uint8_t>();
    bytes[at % bytes.size()] = in.take<uint8_t>();
  }
  return bytes;
}

void check_prefixes(const Bytes& frame, size_t cut) {
  size_t size = 0;
  require(wire::frame_peek(std::span(frame).first(cut), size) == wire::FrameState::kIncomplete,
          "the beginning of a frame is not seen as one");
  require(size == 0 || size == frame.size(), "the size of a frame depends on what is there");
  wire::Message message;
  require(!wire::decode(std::span(frame).first(cut), message), "a message that was cut decodes");
  Bytes longer = frame;
  longer.push_back(0);
  require(!wire::decode(longer, message), "a message with a byte too much decodes");
}

void check_sealed(const Bytes& frame, Input& in) {
  static const Keys keys;
  const net::Way way{keys.ours, keys.theirs};
  Bytes sealed = frame, opened;
  require(net::seal(keys.secret, 5, way, sealed), "no memory");
  require(sealed.size() == frame.size() + wire::kSealSize, "the size of a seal is wrong");
  size_t size = 0;
  require(wire::frame_peek(sealed, size) == wire::FrameState::kComplete && size == sealed.size() &&
              wire::frame_is_sealed(sealed) && net::sealed_with(sealed) == 5 &&
              wire::frame_sequence(sealed) == wire::frame_sequence(frame),
          "a sealed frame is not seen as one");
  wire::Message message;
  require(!wire::decode(sealed, message), "a sealed frame decodes");
  require(net::unseal(keys.secret, way, sealed, opened) && opened == frame, "a seal does not open");
  require(!net::unseal(keys.secret, {keys.theirs, keys.ours}, sealed, opened),
          "a frame opens on the way back");
  sealed[in.take<uint32_t>() % sealed.size()] ^= static_cast<uint8_t>(1u << in.below(8));
  if (wire::frame_peek(sealed, size) != wire::FrameState::kComplete || size != sealed.size() ||
      !wire::frame_is_sealed(sealed))
    return;
  require(!net::unseal(keys.secret, way, sealed, opened), "a changed frame opens");
}

void check_unsealed(const Bytes& frame) {
  static const Keys keys;
  (void)net::sealed_with(frame);
  Bytes opened;
  require(!net::unseal(keys.secret, {keys.ours, keys.theirs}, frame, opened),
          "a forged seal opens");
}

// Messages whose lists are as long as they may be, and longer.
void check_lists(Input& in) {
  constexpr size_t kSizes[] = {0, 1, wire::kKeysMax - 1, wire::kKeysMax, wire::kKeysMax + 1};
  const size_t count = kSizes[in.below(std::size(kSizes))];
  wire::Message message;
  switch (in.below(4)) {
    case 0:
      message = wire::KeyQuery{{}, {}, 1, 2, 3, std::vector<uint32_t>(count, in.take<uint32_t>())};
      break;
    case 1:
      message = wire::KeyReply{{}, {}, 2, 3, std::vector<wire::KeyPair>(count, {1, 2, true})};
      break;
    case 2:
      message = wire::Bind{{}, {}, 1, 2, 3, std::vector<wire::Gid>(count), 4, 5};
      break;
    default:
      message = wire::KeysGone{{}, {}, 1, 2, false, std::vector<uint32_t>(count, 9)};
  }
  Bytes bytes(3, 0xee);
  const bool fits = wire::encode(message, bytes, 1);
  require(fits == (bytes.size() > 3) && bytes.size() <= 3 + wire::kMessageMax,
          "what does not fit leaves bytes, or what fits is too long");
  require(!fits || count <= wire::kKeysMax, "a list that is too long is encoded");
  require(count > 1 || fits, "a short list is not encoded");
  if (!fits) return;
  wire::Message again;
  require(wire::decode(std::span(bytes).subspan(3), again) && again == message,
          "a message is not what it was");
}

}  // namespace

void messages(std::span<const uint8_t> input) {
  Input in(input);
  const uint8_t form = in.below(9);
  if (form == 0) return check_lists(in);
  const auto cut = in.take<uint16_t>();
  Input changes(input);
  Bytes frame;
  if (form == 1) {
    const auto rest = in.rest();
    frame.assign(rest.begin(), rest.end());
  } else {
    frame = form < 5 ? framed(in) : poked(in);
  }
  size_t size = 0;
  const auto state = wire::frame_peek(frame, size);
  wire::Message message = wire::Close{{{}, 1}, {{}, 2}};
  const wire::Message before = message;
  if (!wire::decode(frame, message)) {
    require(message == before, "a message that does not decode leaves something");
    if (state == wire::FrameState::kComplete && size == frame.size() &&
        wire::frame_is_sealed(frame))
      check_unsealed(frame);
    return;
  }
  require(state == wire::FrameState::kComplete && size == frame.size(),
          "a part of a frame decodes");
  Bytes again;
  require(wire::encode(message, again, wire::frame_sequence(frame)), "what decodes is not encoded");
  require(again == frame, "a message has two forms on the wire");
  require(wire::message_name(message)[0] != '?', "a message has no name");
  check_prefixes(frame, cut % frame.size());
  check_sealed(frame, changes);
}

}  // namespace shift::fuzz
