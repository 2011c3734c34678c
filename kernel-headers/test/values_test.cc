// Compares the numbers of the plain header with those of the code: enumerators, flags, bounds,
// ports. A switch without a default shows, as a warning of the compiler, an enumerator that only
// one of the two has; the presets make it an error.
#include <gtest/gtest.h>
#include <rdma/shift-wire.h>

#include <optional>

#include "fsm/fsm.h"
#include "group/device.h"
#include "net/channel.h"
#include "net/connection.h"
#include "net/first_message.h"
#include "net/secrets.h"
#include "net/socket.h"
#include "util/config.h"
#include "wire/messages.h"

namespace shift::header {
namespace {

// Defines code_of(), which leads from an enumerator of the header to that of the code, and
// header_of(), which leads back.
#define SHIFT_TO_CODE(code, header) \
  case header:                      \
    return code;
#define SHIFT_TO_HEADER(code, header) \
  case code:                          \
    return header;
#define SHIFT_ENUMERATION(Code, Header, PAIRS)                 \
  [[maybe_unused]] std::optional<Code> code_of(Header value) { \
    switch (value) { PAIRS(SHIFT_TO_CODE) }                    \
    return std::nullopt;                                       \
  }                                                            \
  std::optional<Header> header_of(Code value) {                \
    switch (value) { PAIRS(SHIFT_TO_HEADER) }                  \
    return std::nullopt;                                       \
  }

#define HELLO_STATUS(PAIR)                                        \
  PAIR(wire::HelloStatus::kOk, SHIFT_WIRE_HELLO_OK)               \
  PAIR(wire::HelloStatus::kNoSuchQp, SHIFT_WIRE_HELLO_NO_SUCH_QP) \
  PAIR(wire::HelloStatus::kRefused, SHIFT_WIRE_HELLO_REFUSED)
#define READY_KIND(PAIR)                                  \
  PAIR(wire::Ready::Kind::kReady, SHIFT_WIRE_READY_READY) \
  PAIR(wire::Ready::Kind::kAsk, SHIFT_WIRE_READY_ASK)     \
  PAIR(wire::Ready::Kind::kBroken, SHIFT_WIRE_READY_BROKEN)
#define DRAIN_KIND(PAIR)                                \
  PAIR(wire::Drain::Kind::kAsk, SHIFT_WIRE_DRAIN_ASK)   \
  PAIR(wire::Drain::Kind::kDone, SHIFT_WIRE_DRAIN_DONE) \
  PAIR(wire::Drain::Kind::kCancel, SHIFT_WIRE_DRAIN_CANCEL)
#define PROBE_KIND(PAIR)                                    \
  PAIR(wire::Probe::Kind::kOffer, SHIFT_WIRE_PROBE_OFFER)   \
  PAIR(wire::Probe::Kind::kAccept, SHIFT_WIRE_PROBE_ACCEPT) \
  PAIR(wire::Probe::Kind::kRefuse, SHIFT_WIRE_PROBE_REFUSE) \
  PAIR(wire::Probe::Kind::kTold, SHIFT_WIRE_PROBE_TOLD)
#define PROBE_RESULT(PAIR)                                      \
  PAIR(wire::Probe::Result::kNothing, SHIFT_WIRE_PROBE_NOTHING) \
  PAIR(wire::Probe::Result::kPassed, SHIFT_WIRE_PROBE_PASSED)   \
  PAIR(wire::Probe::Result::kFailed, SHIFT_WIRE_PROBE_FAILED)
#define REFUSE_REASON(PAIR)                                                \
  PAIR(wire::RefuseReason::kUnknown, SHIFT_WIRE_REFUSE_UNKNOWN)            \
  PAIR(wire::RefuseReason::kGone, SHIFT_WIRE_REFUSE_GONE)                  \
  PAIR(wire::RefuseReason::kInError, SHIFT_WIRE_REFUSE_IN_ERROR)           \
  PAIR(wire::RefuseReason::kNotProtected, SHIFT_WIRE_REFUSE_NOT_PROTECTED) \
  PAIR(wire::RefuseReason::kNoBackup, SHIFT_WIRE_REFUSE_NO_BACKUP)         \
  PAIR(wire::RefuseReason::kFenceFailed, SHIFT_WIRE_REFUSE_FENCE_FAILED)   \
  PAIR(wire::RefuseReason::kKeyMissing, SHIFT_WIRE_REFUSE_KEY_MISSING)

SHIFT_ENUMERATION(wire::HelloStatus, shift_wire_hello_status, HELLO_STATUS)
SHIFT_ENUMERATION(wire::Ready::Kind, shift_wire_ready_kind, READY_KIND)
SHIFT_ENUMERATION(wire::Drain::Kind, shift_wire_drain_kind, DRAIN_KIND)
SHIFT_ENUMERATION(wire::Probe::Kind, shift_wire_probe_kind, PROBE_KIND)
SHIFT_ENUMERATION(wire::Probe::Result, shift_wire_probe_result, PROBE_RESULT)
SHIFT_ENUMERATION(wire::RefuseReason, shift_wire_refuse_reason, REFUSE_REASON)

template <typename Code>
int differing() {
  int found = 0, known = 0;
  for (int value = 0; value <= UINT8_MAX; value++) {
    const auto other = header_of(static_cast<Code>(value));
    known += other.has_value();
    found += other && (static_cast<int>(*other) != value ||
                       code_of(*other) != std::optional(static_cast<Code>(value)));
  }
  return known >= 3 ? found : -1;  // each of them has three values at least
}

TEST(HeaderValues, EnumerationsAreTheCodes) {
  EXPECT_EQ(differing<wire::HelloStatus>(), 0);
  EXPECT_EQ(differing<wire::Ready::Kind>(), 0);
  EXPECT_EQ(differing<wire::Drain::Kind>(), 0);
  EXPECT_EQ(differing<wire::Probe::Kind>(), 0);
  EXPECT_EQ(differing<wire::Probe::Result>(), 0);
  EXPECT_EQ(differing<wire::RefuseReason>(), 0);
  EXPECT_EQ(SHIFT_WIRE_ACCEPT_ACCEPTED, wire::Accept::kAccepted);
  EXPECT_EQ(SHIFT_WIRE_ACCEPT_REFUSED, wire::Accept::kRefused);
  EXPECT_EQ(SHIFT_WIRE_ACCEPT_BUSY, wire::Accept::kBusy);
  EXPECT_EQ(SHIFT_WIRE_SWITCH_FAULT, wire::Switch::kFault);
  EXPECT_EQ(SHIFT_WIRE_SWITCH_RETURN, wire::Switch::kReturn);
  EXPECT_EQ(uint32_t{SHIFT_WIRE_BIND_HAS_SQ_PSN}, wire::Bind::kHasSqPsn);
  EXPECT_EQ(uint32_t{SHIFT_WIRE_BIND_ASKS_RESPONDER}, wire::Bind::kAsksResponder);
  EXPECT_EQ(uint32_t{SHIFT_WIRE_BIND_FORGETS_KEYS}, wire::Bind::kForgetsKeys);
  EXPECT_EQ(uint32_t{SHIFT_WIRE_BIND_HEEDS_AVOID}, wire::Bind::kHeedsAvoid);
  EXPECT_EQ(uint32_t{SHIFT_WIRE_BIND_PROBES}, wire::Bind::kProbes);
  EXPECT_EQ(uint32_t{SHIFT_WIRE_BIND_TELLS_NICS}, wire::Bind::kTellsNics);
  EXPECT_EQ(uint32_t{SHIFT_WIRE_BIND_HAS_MORE}, wire::Bind::kHasMore);
}

TEST(HeaderValues, FrameIsTheCodecs) {
  EXPECT_EQ(uint32_t{SHIFT_WIRE_MAGIC}, wire::kMagic);
  EXPECT_EQ(SHIFT_WIRE_VERSION, wire::kVersion);
  EXPECT_EQ(sizeof(shift_wire_header), wire::kHeaderSize);
  EXPECT_EQ(int{SHIFT_WIRE_SEALED}, int{wire::kSealed});
  EXPECT_EQ(size_t{SHIFT_WIRE_SEAL_SIZE}, wire::kSealSize);
  EXPECT_EQ(sizeof(shift_wire_seal) + SHIFT_WIRE_TAG_SIZE, wire::kSealSize);
  EXPECT_EQ(size_t{SHIFT_WIRE_GID_SIZE}, sizeof(wire::Gid::raw));
  EXPECT_EQ(size_t{SHIFT_WIRE_INSTANCE_SIZE}, sizeof(wire::Instance::raw));
  EXPECT_EQ(size_t{SHIFT_WIRE_PUBLIC_KEY_SIZE}, sizeof(wire::PublicKey::raw));
  EXPECT_EQ(size_t{SHIFT_WIRE_NONCE_SIZE}, sizeof(wire::Nonce::raw));
  EXPECT_EQ(size_t{SHIFT_WIRE_TAG_SIZE}, sizeof(wire::Tag::raw));
}

TEST(HeaderValues, BoundsAreTheCodes) {
  EXPECT_EQ(size_t{SHIFT_WIRE_FRAME_MAX}, wire::kMessageMax);
  EXPECT_EQ(size_t{SHIFT_WIRE_ITEMS_MAX}, wire::kKeysMax);
  EXPECT_EQ(size_t{SHIFT_WIRE_HANDSHAKE_MAX}, net::FirstMessage::kSizeMax);
  EXPECT_EQ(size_t{SHIFT_WIRE_STRANGER_MAX}, net::Connection::kStrangerFrameMax);
  EXPECT_EQ(size_t{SHIFT_WIRE_DATAGRAM_MAX}, net::kDatagramMax);
  EXPECT_EQ(uint64_t{1} << SHIFT_WIRE_STEP_LOG2, net::Channel::kJumpMax);
  EXPECT_EQ(SHIFT_WIRE_MEMBERS_MAX, group::kMembersMax);
  constexpr uint32_t kOwn = 0xffffff00;  // epochs wrap
  EXPECT_EQ(fsm::compare_epoch(kOwn + SHIFT_WIRE_EPOCHS_AHEAD, kOwn), fsm::EpochIs::kNext);
  EXPECT_EQ(fsm::compare_epoch(kOwn + SHIFT_WIRE_EPOCHS_AHEAD + 1, kOwn), fsm::EpochIs::kStale);
}

TEST(HeaderValues, PortsAreTheCodes) {
  EXPECT_EQ(SHIFT_WIRE_PORT, Config().port);
  for (const uint64_t id : {uint64_t{1}, uint64_t{1023}, uint64_t{1024}, UINT64_MAX}) {
    const auto step = static_cast<int>(1 + id % SHIFT_WIRE_KEY_PORTS);
    EXPECT_EQ(net::Secrets::port_of(SHIFT_WIRE_PORT, id), SHIFT_WIRE_PORT + step);
    EXPECT_EQ(net::Secrets::port_of(UINT16_MAX - SHIFT_WIRE_KEY_PORTS, id),
              UINT16_MAX - SHIFT_WIRE_KEY_PORTS + step);
    EXPECT_EQ(net::Secrets::port_of(UINT16_MAX - SHIFT_WIRE_KEY_PORTS + 1, id),
              UINT16_MAX - SHIFT_WIRE_KEY_PORTS + 1 - step);
  }
}

}  // namespace
}  // namespace shift::header
