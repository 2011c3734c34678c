// The question "who owns this QP?" and its possible answers.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "net/loop.h"
#include "wire/names.h"

namespace shift::net {

class PeerChannel;

enum class FindError : uint8_t {
  kNone = 0,
  kUnsupportedGid,  // the port of the local GID has no IPv4 address to look from
  kNoAnswer,        // no host on the link answers for the peer's GID
  kNoShift,         // no process listens at the port: the peer runs without SHIFT
  kNoSuchQp,        // SHIFT is there, but no process owned the QP until the deadline
  kUnreachable,     // no connection until the deadline
  kRefused,         // the QP's owner refuses this process
  kStopped,         // the PeerNet ended
};
const char* find_error_name(FindError error) noexcept;

// What a store on the network has answered to the question where a host is.
enum class Stored : uint8_t {
  kFound,    // there are addresses
  kUnknown,  // it has none, or none that can be believed
  kAway,     // it is away, late, or refuses
};
using StoredCallback = std::function<void(Stored stored)>;

struct FindRequest {
  wire::QpName remote;
  wire::QpName local;
  Loop::Clock::time_point deadline;
  // This host's address on the link of the local GID; 0 stands for the address in the GID itself.
  uint32_t local_ip_be = 0;
  // Further addresses of this host's NICs, from which the peer is looked for, too.
  std::vector<uint32_t> more_local_ip_be;
  // The NIC of the local GID works, as far as is known: it has a head start before the others.
  bool is_first_usable = true;
};
// `channel` is null if and only if `error` is not kNone.
using FindCallback = std::function<void(PeerChannel* channel, FindError error)>;

}  // namespace shift::net
