// Why a group leaves its path: the cause, and its detector.
#pragma once

#include <cstdint>

namespace shift::group {

// Where the first sign of a fault came from.
enum class Detector : uint8_t {
  kNone,        // the path has no fault
  kCompletion,  // a completion with an error
  kPost,        // a request or a receive that the device did not take
  kPort,        // PORT_ERR
  kDevice,      // DEVICE_FATAL
  kAddress,     // the NIC's address has left the GID table
  kLink,        // the network device of the port lost its carrier
  kPeer,        // the peer has said so
  kNeighbour,   // another QP of the same path
  kProbe,       // no fault: a probe succeeded on a better path
  kOrder,       // no fault: an operator drains a NIC, or moves the QP
};

constexpr const char* to_string(Detector detector) {
  switch (detector) {
    case Detector::kNone:
      break;
    case Detector::kCompletion:
      return "completion";
    case Detector::kPost:
      return "post";
    case Detector::kPort:
      return "port-event";
    case Detector::kDevice:
      return "device-event";
    case Detector::kAddress:
      return "address";
    case Detector::kLink:
      return "link-state";
    case Detector::kPeer:
      return "peer";
    case Detector::kNeighbour:
      return "neighbour";
    case Detector::kProbe:
      return "probe";
    case Detector::kOrder:
      return "order";
  }
  return "none";
}

struct Cause {
  // NOLINTNEXTLINE(google-explicit-constructor): most causes are a text and nothing else
  constexpr Cause(const char* why = "", Detector by = Detector::kNone) : text(why), detector(by) {}

  const char* text;  // a string that is never freed
  Detector detector;
};

}  // namespace shift::group
