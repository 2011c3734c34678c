// The frames that a Connection delivers, and whether it closes, follow from the bytes alone and not
// from the pieces in which they come. The other opinion is a parser of the whole stream that knows
// nothing but docs/rendezvous.md.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "net/connection.h"
#include "tests/fuzz/targets.h"
#include "util/log.h"

namespace shift::fuzz {
namespace {

using Bytes = std::vector<uint8_t>;

// After so many frames the receiver refuses one, or begins to rely on its peer.
struct Receiver {
  size_t refuses, relies_after;
};

struct Outcome {
  std::vector<Bytes> frames;
  bool is_closed = false;
};

// What has to be delivered of the stream.
Outcome expected(const Bytes& stream, const Receiver& receiver) {
  Outcome out;
  for (size_t at = 0; at < stream.size();) {
    constexpr uint8_t kMagic[] = {'S', 'H', 'F', 'T'};
    const size_t left = stream.size() - at;
    const uint8_t* head = &stream[at];
    for (size_t i = 0; i < std::min(left, sizeof kMagic); i++)
      out.is_closed = out.is_closed || head[i] != kMagic[i];
    if (out.is_closed || left < 20) return out;
    const bool is_sealed = head[6] == 1;
    const size_t size = head[8] | head[9] << 8 | head[10] << 16 | size_t{head[11]} << 24;
    const size_t more = is_sealed ? 24 : 0;
    out.is_closed = head[4] != 5 || head[5] < 1 || head[5] > 19 || head[6] > 1 || head[7] != 0 ||
                    size < 20 + more || size > (1u << 20) + more ||
                    (size > 4096 && out.frames.size() < receiver.relies_after);
    if (out.is_closed || left < size) return out;
    out.frames.emplace_back(head, head + size);
    out.is_closed = out.frames.size() == receiver.refuses;
    if (out.is_closed) return out;
    at += size;
  }
  return out;
}

void append_frame(Input& in, Bytes& stream) {
  wire::Message message;
  switch (in.below(4)) {
    case 0:
      message = wire::Close{{{}, in.take<uint32_t>()}, {}};
      break;
    case 1:
      message = wire::KeyQuery{{}, {}, 0, 1, 2, std::vector<uint32_t>(in.take<uint8_t>(), 3)};
      break;
    case 2:  // it is longer than a stranger's may be
      message = wire::KeysGone{{}, {}, 0, 1, false, std::vector<uint32_t>(900 + in.below(255), 3)};
      break;
    default:
      message = wire::Confirm{};
  }
  if (!wire::encode(message, stream, in.take<uint8_t>())) abort();
}

Bytes stream_of(Input& in) {
  Bytes stream;
  for (int i = in.below(12); i > 0; i--) {
    const size_t start = stream.size();
    const uint8_t kind = in.below(8);
    if (kind != 0) append_frame(in, stream);
    if (kind < 2) {  // bytes that may be anything
      Bytes raw(in.below(40));
      in.take(raw.data(), raw.size());
      stream.insert(stream.end(), raw.begin(), raw.end());
    } else if (kind == 2) {  // a header that was changed
      stream[start + in.below(20)] = in.take<uint8_t>();
    }
  }
  return stream;
}

// All inputs share one pair of sockets, since to close one can take milliseconds.
class Ends {
 public:
  Ends() { require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds_) == 0, "no sockets"); }
  ~Ends() {
    close(fds_[0]);
    close(fds_[1]);
  }
  Ends(const Ends&) = delete;
  UniqueFd take() {
    uint8_t left[4096];
    while (recv(fds_[1], left, sizeof left, MSG_DONTWAIT) > 0) continue;
    return UniqueFd(dup(fds_[1]));
  }
  // It may fail when nobody reads any more, because the connection was closed.
  void say(std::span<const uint8_t> bytes) {
    (void)!send(fds_[0], bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

 private:
  int fds_[2];
};

}  // namespace

void framing(std::span<const uint8_t> input) {
  static net::Reactor reactor;
  log_set_level(static_cast<LogLevel>(-1));
  Input in(input);
  const Receiver receiver{in.below(16), in.below(8)};
  const Bytes stream = stream_of(in);
  Outcome got;
  size_t closed = 0;
  static Ends ends;
  const auto connection = std::make_shared<net::Connection>(reactor, ends.take(), 0, 0);
  require(connection->open({
              [&](net::Connection&, std::span<const uint8_t> frame) {
                got.frames.emplace_back(frame.begin(), frame.end());
                return got.frames.size() != receiver.refuses;
              },
              [&] { return got.frames.size() >= receiver.relies_after; },
              [&](net::Connection&, const char*) { closed++; },
          }),
          "the reactor takes no descriptor");
  for (size_t at = 0; at < stream.size();) {
    const size_t piece = std::min<size_t>(1 + in.take<uint16_t>() % 600, stream.size() - at);
    ends.say(std::span(stream).subspan(at, piece));
    at += piece;
    for (int turns = 0; reactor.turn(); turns++) require(turns < 100, "the loop never rests");
  }
  got.is_closed = !connection->is_open();
  const Outcome right = expected(stream, receiver);
  require(got.frames == right.frames, "the frames depend on the pieces");
  require(got.is_closed == right.is_closed, "the end depends on the pieces");
  require(closed == (got.is_closed ? 1 : 0), "the end is told wrongly");
  connection->close("the input has ended");
  while (reactor.turn()) continue;
  require(closed == 1, "the end is not told once");
}

}  // namespace shift::fuzz
