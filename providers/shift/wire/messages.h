// Control messages between the two processes of a protected QP pair. Everything in them comes from
// a stranger: decoding checks the form only, the meaning is for the receiver's state table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "wire/names.h"

namespace shift::wire {

inline constexpr uint32_t kMagic = 0x54464853;  // "SHFT" as it lies on the wire
inline constexpr uint8_t kVersion = 4;
inline constexpr size_t kHeaderSize = 20;           // magic, version, type, flags, length, sequence
inline constexpr size_t kMessageMax = 1024 * 1024;  // header included
inline constexpr size_t kKeysMax = 65536;           // keys in one KeyQuery or KeyReply

// In all messages `from` is the sender's default QP and `to` the receiver's.

// First message of a connection, and the question "do you own this QP?" on a channel that exists.
struct Hello {
  Instance instance;  // the asking process
  Instance target;    // the process looked for; zero: whoever owns `want`
  QpName want;        // the QP looked for
  QpName from;        // the asker's QP
  // Start PSNs of the asker's default QP. The owner of `want` holds the same two numbers, crossed.
  uint32_t from_sq_psn = 0;
  uint32_t from_rq_psn = 0;
  uint8_t pair = 0;  // 0: found through `want`; n: n-th further address pair of the channel

  bool operator==(const Hello&) const = default;
};

enum class HelloStatus : uint8_t { kOk = 0, kNoSuchQp = 1, kRefused = 2 };

struct HelloReply {
  Instance instance;  // the answering process; zero when nobody owns the QP
  QpName want;        // both copied from the Hello, to tell answers on a shared channel apart
  QpName from;
  HelloStatus status = HelloStatus::kOk;
  uint8_t reason = 0;  // with kRefused

  bool operator==(const HelloReply&) const = default;
};

// "These are my default QP's start PSNs, and these are my NICs." Sent by both ends.
struct Bind {
  static constexpr uint32_t kHasSqPsn = 1u << 0;  // the sender's QP has reached RTS
  // Its mode is exact: it wants to know how far our responders got.
  static constexpr uint32_t kAsksResponder = 1u << 1;

  QpName from, to;
  uint32_t sq_psn = 0, rq_psn = 0;
  uint8_t members_up = 0;    // bit n: member n works
  std::vector<Gid> members;  // of the sender's device group
  uint32_t flags = 0;
  uint32_t epoch = 0;

  bool operator==(const Bind&) const = default;
};

// A path: a member of the leader's and one of the follower's.
struct PathName {
  uint8_t leader = 0, follower = 0;

  auto operator<=>(const PathName&) const = default;
};

// A QP of the group that is ready to be connected.
struct QpAddress {
  Gid gid;
  uint32_t qpn = 0;
  uint32_t psn = 0;  // start PSN of what it sends
  uint8_t mtu = 0;   // enum ibv_mtu

  bool operator==(const QpAddress&) const = default;
};

// "Connect your QP of this path to mine." Leader to follower.
struct Offer {
  QpName from, to;
  PathName path;
  uint32_t generation = 0;  // of this connection; one more at each Offer of the group
  QpAddress address;

  bool operator==(const Offer&) const = default;
};

// "Mine is connected, connect yours." Follower to leader; the answer to an Offer.
struct Accept {
  static constexpr uint8_t kAccepted = 0;  // `address` is valid
  static constexpr uint8_t kRefused = 1, kBusy = 2;

  QpName from, to;
  PathName path;
  uint32_t generation = 0;
  uint8_t status = kAccepted;
  QpAddress address;

  bool operator==(const Accept&) const = default;
};

// Leader to follower: "mine is connected; can you send over it?" (kAsk, when the leader's QP only
// receives), or "this path is ready" (kReady). Follower to leader: the answer to kAsk.
struct Ready {
  enum class Kind : uint8_t { kReady = 0, kAsk = 1, kBroken = 2 };

  QpName from, to;
  PathName path;
  uint32_t generation = 0;
  Kind kind = Kind::kReady;

  bool operator==(const Ready&) const = default;
};

// "Of my NICs these work now."
struct Members {
  QpName from, to;
  uint32_t seq = 0;
  uint8_t up = 0;

  bool operator==(const Members&) const = default;
};

// The way back: the leader asks for a drain or calls it off, the follower says that it is done.
struct Drain {
  enum class Kind : uint8_t { kAsk = 0, kDone = 1, kCancel = 2 };

  QpName from, to;
  uint32_t epoch = 0;
  uint32_t attempt = 0;  // counts the leader's drains
  Kind kind = Kind::kAsk;

  bool operator==(const Drain&) const = default;
};

// "I stop using the old path and fence it."
struct Switch {
  static constexpr uint8_t kFault = 0, kReturn = 1;  // reasons

  QpName from, to;
  uint32_t epoch = 0;
  uint32_t seq = 0;
  uint8_t reason = 0;

  bool operator==(const Switch&) const = default;
};

// How far the responder of a fenced connection got: the next PSN it expected.
struct ResponderPsn {
  PathName path;
  uint32_t generation = 0;  // 0: the connection that the application made
  uint32_t psn = 0;

  bool operator==(const ResponderPsn&) const = default;
};

// "My old path is fenced, this much I consumed, my receives stand on the target." The leader's
// names the target, the follower's confirms it.
struct Progress {
  QpName from, to;
  uint32_t epoch = 0;
  uint32_t seq = 0;
  uint64_t notifications_received = 0;
  PathName target;
  uint32_t generation = 0;  // of the target's connection
  // To a peer that asks: of the connections fenced last. Several, because the peer may not have
  // sent on the newest.
  std::vector<ResponderPsn> responders;

  bool operator==(const Progress&) const = default;
};

struct KeyQuery {
  QpName from, to;
  uint32_t epoch = 0;
  uint32_t query_id = 0;
  uint8_t member = 0;  // of the asked end, whose keys are wanted
  std::vector<uint32_t> rkeys;

  bool operator==(const KeyQuery&) const = default;
};

struct KeyPair {
  uint32_t rkey = 0;
  uint32_t new_rkey = 0;
  bool found = false;

  bool operator==(const KeyPair&) const = default;
};

struct KeyReply {
  QpName from, to;
  uint32_t query_id = 0;
  uint8_t member = 0;
  std::vector<KeyPair> keys;

  bool operator==(const KeyReply&) const = default;
};

enum class RefuseReason : uint8_t {
  kUnknown = 0,
  kGone = 1,
  kInError = 2,
  kNotProtected = 3,
  kNoBackup = 4,
  kFenceFailed = 5,
  kKeyMissing = 6,
};

// "This QP cannot be moved." Reasons this side does not know are passed on as they came.
struct Refuse {
  QpName from, to;
  uint32_t epoch = 0;
  RefuseReason reason = RefuseReason::kUnknown;

  bool operator==(const Refuse&) const = default;
};

// "My QP was destroyed or reset."
struct Close {
  QpName from, to;

  bool operator==(const Close&) const = default;
};

// "Who has this GID?" To everybody in a subnet, in a datagram of its own; the answer comes back the
// same way. Never on a connection.
struct GidQuery {
  uint64_t nonce = 0;  // random, and repeated in the answer
  Gid gid;

  bool operator==(const GidQuery&) const = default;
};

struct GidAnswer {
  uint64_t nonce = 0;
  Gid gid;      // both copied from the question
  Gid address;  // the IPv4 address, as a GID, at which the holder's processes can be reached

  bool operator==(const GidAnswer&) const = default;
};

// The order is the type number on the wire, counted from 1: append only.
using Message = std::variant<Hello, HelloReply, Bind, Offer, Accept, Ready, Members, Drain, Switch,
                             Progress, KeyQuery, KeyReply, Refuse, Close, GidQuery, GidAnswer>;

const char* message_name(const Message& message) noexcept;

// Appends header and body to `out`. False (nothing appended) when the message is too large or
// memory is short. `sequence` grows with each message of a process to a peer; 0, which no message
// of a channel has: the message stands by itself (the first of a connection, a datagram).
[[nodiscard]] bool encode(const Message& message, std::vector<uint8_t>& out,
                          uint64_t sequence = 0) noexcept;

enum class FrameState { kIncomplete, kComplete, kMalformed };

// Looks at the start of a byte stream. `size` is that of the first message, or 0 as long as its
// header is incomplete.
FrameState frame_peek(std::span<const uint8_t> bytes, size_t& size) noexcept;

// Decodes exactly one message; refuses anything truncated, trailing, oversized or unknown.
[[nodiscard]] bool decode(std::span<const uint8_t> frame, Message& out) noexcept;

// Of a complete message.
uint64_t frame_sequence(std::span<const uint8_t> frame) noexcept;

}  // namespace shift::wire
