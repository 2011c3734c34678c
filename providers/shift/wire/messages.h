// The messages between two processes, and the functions that encode and decode them. All their
// content comes from a stranger: decoding checks the form only, and the receiver judges the meaning
// (C11).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "wire/names.h"

namespace shift::wire {

inline constexpr uint32_t kMagic = 0x54464853;  // it reads "SHFT" on the wire
inline constexpr uint8_t kVersion = 5;
// Magic, version, type, flags, length, sequence.
inline constexpr size_t kHeaderSize = 20;
inline constexpr size_t kMessageMax = 1024 * 1024;  // bytes, with the header
// Flag of a sealed frame: behind the header come the id of a job key (8 bytes), the encrypted body,
// and a tag of 16 bytes.
inline constexpr uint16_t kSealed = 1u << 0;
inline constexpr size_t kSealSize = 8 + 16;  // bytes by which a sealed frame is longer
inline constexpr size_t kKeysMax = 65536;    // keys in one KeyQuery, KeyReply or KeysGone

// In all messages `from` is the sender's default QP and `to` the receiver's.

// The first message of a connection; or, on a channel that exists, the question "do you own this
// QP?", which has neither key, nonce nor tag. Tags are made and checked by net/proof.h.
struct Hello {
  Instance instance;  // the asking process
  // The instance is its hash. Zero with a job key, and where the answerer knows the process.
  PublicKey identity{};
  Instance target;   // the process that is looked for; zero: the one that owns `want`
  QpName want;       // the QP that is looked for
  QpName from;       // the asker's QP
  uint8_t pair = 0;  // 0: found through `want`; n: for the channel's n-th kept pair of addresses
  uint64_t key = 0;  // the id of the job key that the tags of the handshake are made with; 0: none
  Nonce nonce;
  Tag tag{};

  bool operator==(const Hello&) const = default;
};

enum class HelloStatus : uint8_t {
  kOk = 0,
  kNoSuchQp = 1,
  kRefused = 2,
};

struct HelloReply {
  Instance instance;     // the answering process; zero when it owns no such QP
  PublicKey identity{};  // as in the Hello
  Nonce nonce;
  // Both names are copied from the Hello, to tell the answers on a shared channel apart.
  QpName want;
  QpName from;
  HelloStatus status = HelloStatus::kOk;
  uint8_t reason = 0;  // with kRefused
  Tag tag{};

  bool operator==(const HelloReply&) const = default;
};

// The asker's answer to a HelloReply that says yes: its proof. The connection joins the channel
// after it.
struct Confirm {
  Tag tag{};

  bool operator==(const Confirm&) const = default;
};

// "These are my default QP's start PSNs, and these are my NICs." Both ends send it.
struct Bind {
  static constexpr uint32_t kHasSqPsn = 1u << 0;  // the sender's QP has reached RTS
  // The sender's mode is exact or auto: it wants to know how far the receiver's responders got.
  static constexpr uint32_t kAsksResponder = 1u << 1;
  static constexpr uint32_t kForgetsKeys = 1u << 2;  // the sender answers KeysGone
  static constexpr uint32_t kHeedsAvoid = 1u << 3;   // the sender knows Avoid
  // 1u << 4 was: the sender knows Nics, and names four NICs here.
  static constexpr uint32_t kProbes = 1u << 5;     // the sender knows Probe
  static constexpr uint32_t kTellsNics = 1u << 6;  // the sender knows Nics
  static constexpr uint32_t kHasMore = 1u << 7;    // the sender has more NICs than it names here
  // A follower of a build before Nics dies when it is told of more NICs than it has, which are two.
  static constexpr size_t kMembersMax = 2;

  QpName from, to;
  uint32_t sq_psn = 0, rq_psn = 0;  // the start PSNs of what the sender's QP sends and receives
  uint8_t members_up = 0;           // bit n: member n works
  std::vector<Gid> members;         // the first ones of the sender's device group
  uint32_t flags = 0;
  uint32_t epoch = 0;  // the sender's

  bool operator==(const Bind&) const = default;
};

// The name of a path: a member of the leader and one of the follower.
struct PathName {
  uint8_t leader = 0, follower = 0;

  auto operator<=>(const PathName&) const = default;
};

// A group's QP that is ready to be connected.
struct QpAddress {
  Gid gid;
  uint32_t qpn = 0;
  uint32_t psn = 0;  // the start PSN of what this QP sends
  uint8_t mtu = 0;   // enum ibv_mtu

  bool operator==(const QpAddress&) const = default;
};

// "Connect your QP of this path to mine." Leader to follower.
struct Offer {
  QpName from, to;
  PathName path;
  uint32_t generation = 0;  // of this connection; it grows with each Offer of the group
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

// Leader to follower: "mine is connected; can you send over it?" (kAsk), or "this path is ready"
// (kReady). Follower to leader: the answer to kAsk; or kBroken, unasked, when the path no longer
// works.
struct Ready {
  enum class Kind : uint8_t { kReady = 0, kAsk = 1, kBroken = 2 };

  QpName from, to;
  PathName path;
  uint32_t generation = 0;
  Kind kind = Kind::kReady;

  bool operator==(const Ready&) const = default;
};

// "These of my NICs work now."
struct Members {
  QpName from, to;
  uint32_t seq = 0;  // grows with each Members of the sender
  uint8_t up = 0;    // bit n: member n works

  bool operator==(const Members&) const = default;
};

// The way back: the leader asks for a drain or calls it off; the follower says that it is drained.
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

// How far the responder of a fenced connection got: the next PSN that it expected.
struct ResponderPsn {
  PathName path;
  uint32_t generation = 0;  // 0: the connection that the application made
  uint32_t psn = 0;

  bool operator==(const ResponderPsn&) const = default;
};

// "My old path is fenced, I have received this many notifications, and my receives stand on the
// target." The leader's Progress names the target, and the follower's confirms it.
struct Progress {
  QpName from, to;
  uint32_t epoch = 0;
  uint32_t seq = 0;
  uint64_t notifications_received = 0;  // since the sender's QP was made
  PathName target;
  uint32_t generation = 0;  // of the target's connection
  // How far the responders of the last fenced connections got, for a peer that asks. There are
  // several, because the peer may not have sent on the newest one.
  std::vector<ResponderPsn> responders;

  bool operator==(const Progress&) const = default;
};

// "Which keys do these regions have on that member of yours?"
struct KeyQuery {
  QpName from, to;
  uint32_t epoch = 0;
  uint32_t query_id = 0;
  uint8_t member = 0;  // the member of the asked end whose keys are wanted
  std::vector<uint32_t> rkeys;

  bool operator==(const KeyQuery&) const = default;
};

// The default's rkey of a region, and the region's rkey on the member that was asked for.
struct KeyPair {
  uint32_t rkey = 0;
  uint32_t new_rkey = 0;
  bool found = false;

  bool operator==(const KeyPair&) const = default;
};

// The answer to a KeyQuery; it repeats the query's number and member.
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

// "This QP cannot be moved." A reason that the receiver does not know is passed on as it came.
struct Refuse {
  QpName from, to;
  uint32_t epoch = 0;
  RefuseReason reason = RefuseReason::kUnknown;

  bool operator==(const Refuse&) const = default;
};

// "My QP was destroyed or reset, was moved to ERR, or broke by its application's error."
struct Close {
  QpName from, to;

  bool operator==(const Close&) const = default;
};

// "Who has this GID?" It goes to every host of a subnet, in a datagram of its own, and the answer
// comes back in another. Neither travels on a connection.
struct GidQuery {
  uint64_t nonce = 0;  // random, and repeated in the answer
  Gid gid;
  uint64_t key = 0;  // the id of the job key of both tags; 0: none
  Tag tag{};

  bool operator==(const GidQuery&) const = default;
};

// The answer to a GidQuery; it repeats the number and the GID.
struct GidAnswer {
  uint64_t nonce = 0;
  Gid gid;      // copied from the question, as the number is
  Gid address;  // the IPv4 address, as a GID, at which the holder's processes can be reached
  Tag tag{};

  bool operator==(const GidAnswer&) const = default;
};

// "My application has deregistered these regions: forget their keys." It names the default's rkeys,
// and goes only to a peer whose Bind says kForgetsKeys.
struct KeysGone {
  QpName from, to;
  uint32_t epoch = 0;   // the sender's
  uint32_t number = 0;  // repeated in the answer
  bool all = false;     // the peer must forget all keys; `rkeys` is empty
  std::vector<uint32_t> rkeys;

  bool operator==(const KeysGone&) const = default;
};

// The answer to a KeysGone; it repeats the number.
struct KeysForgotten {
  QpName from, to;
  uint32_t number = 0;

  bool operator==(const KeysForgotten&) const = default;
};

// "Leave these NICs of mine, though they work: use them only where there is no other path." It goes
// only to a peer whose Bind says kHeedsAvoid.
struct Avoid {
  QpName from, to;
  uint32_t seq = 0;     // grows with each Avoid of the sender
  uint8_t members = 0;  // bit n: member n is to be left

  bool operator==(const Avoid&) const = default;
};

// One NIC of the sender's device group.
struct NicShare {
  Gid gid;
  // What it can carry for the group, by its speed and its distance from the default NIC, compared
  // with the group's others.
  uint8_t capacity = 0;

  bool operator==(const NicShare&) const = default;
};

// "These are all my NICs, and what they can carry." Both ends send it, if both Binds say kTellsNics
// and one of them kHasMore. Until the leader has heard it, it makes no path.
struct Nics {
  QpName from, to;
  std::vector<NicShare> nics;

  bool operator==(const Nics&) const = default;
};

// About the ways between NICs that are probed when a path has failed, to find where the fault is:
// "connect a QP of your NIC `peer` to mine of my NIC `own`" (kOffer, and the answers kAccept and
// kRefuse); and "this is what a probe between my NIC `own` and its neighbour has shown" (kTold),
// after a fault of the path to the NIC `peer`. It goes only to a peer whose Bind says kProbes.
struct Probe {
  enum class Kind : uint8_t { kOffer = 0, kAccept = 1, kRefuse = 2, kTold = 3 };
  enum class Result : uint8_t { kNothing = 0, kPassed = 1, kFailed = 2 };

  QpName from, to;
  Kind kind = Kind::kOffer;
  uint8_t own = 0, peer = 0;  // NICs of the sender and of the receiver, by their places
  uint32_t number = 0;        // of the offer; the answer repeats it
  Result result = Result::kNothing;
  QpAddress address;  // with kOffer and kAccept

  bool operator==(const Probe&) const = default;
};

// The order gives the type numbers on the wire, counted from 1: new types are appended only. A peer
// of an older build closes the connection over a type that it does not know, so a new type goes
// only to a peer whose Bind says, with a flag, that it knows the type.
using Message = std::variant<Hello, HelloReply, Confirm, Bind, Offer, Accept, Ready, Members, Drain,
                             Switch, Progress, KeyQuery, KeyReply, Refuse, Close, GidQuery,
                             GidAnswer, KeysGone, KeysForgotten, Avoid, Nics, Probe>;

const char* message_name(const Message& message) noexcept;

// Appends header and body to `out`. Returns false, with nothing appended, when the message is too
// large or memory is short. `sequence` grows with each message of a process to a peer. It is 0,
// which no message of a channel has, for a message that stands by itself: the first of a
// connection, or a datagram.
[[nodiscard]] bool encode(const Message& message, std::vector<uint8_t>& out,
                          uint64_t sequence = 0) noexcept;

enum class FrameState { kIncomplete, kComplete, kMalformed };

// Looks at the start of a byte stream. `size` is the first frame's size in bytes, or 0 as long as
// its header is incomplete. A frame is a message, sealed or not.
FrameState frame_peek(std::span<const uint8_t> bytes, size_t& size) noexcept;

// Decodes exactly one message. Returns false, and leaves `out` as it was, when the frame is sealed,
// malformed, incomplete, or longer than its message, or when memory is short.
[[nodiscard]] bool decode(std::span<const uint8_t> frame, Message& out) noexcept;

// The sequence number of a frame whose header is complete, and whether it is sealed.
uint64_t frame_sequence(std::span<const uint8_t> frame) noexcept;
bool frame_is_sealed(std::span<const uint8_t> frame) noexcept;
// Writes a frame's size and whether it is sealed into its header, which is complete.
void frame_mark(std::span<uint8_t> frame, size_t size, bool sealed) noexcept;

}  // namespace shift::wire
