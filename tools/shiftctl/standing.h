// How well a QP is protected, judged by what its process tells.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "host.h"

namespace shift::ctl {

enum class Standing : uint8_t {
  kProtected,    // a fault of its path would be masked: another path is ready
  kOnePath,      // its peer has the layer, and no other path is ready
  kSearching,    // its peer is being looked for
  kMoving,       // it is between two paths
  kUnprotected,  // no peer has proved itself, so it behaves as on the stock library
  kFailed,       // its program was given the original error
  kClosed,       // its program has ended it
  kCount,
};
const char* to_string(Standing standing);  // one word, as metrics and JSON have it
std::string in_words(Standing standing);   // as a sentence goes on: "is protected"

Standing standing_of(const state::GroupRecord& group);
const char* state_name(const state::GroupRecord& group);  // the name of its fsm::State
const char* detector_name(uint8_t detector);              // of a group::Detector
const char* refusal_name(uint8_t refusal);                // of a wire::RefuseReason

// Whether the record tells at which end a fault was found, and not of a QP's change of path.
bool is_incident(const state::FaultRecord& fault);
const char* place_name(const state::FaultRecord& incident);  // of its control::Place

// The local NIC that the QP uses; empty between two paths.
std::string nic_of(const Process& process, const state::GroupRecord& group);
// All NICs of the QP's device group, the default first.
std::vector<std::string> nics_of(const Process& process, const state::GroupRecord& group);
std::vector<std::string> nics_of(const state::DeviceRecord& device);
// The local NICs over which paths are ready beside the current one.
std::vector<std::string> ready_nics_of(const Process& process, const state::GroupRecord& group);
// "mlx5_0 to the peer's NIC 0", or "between two paths".
std::string path_of(const Process& process, const state::GroupRecord& group);
// Why it is not protected, has no second path, or has failed.
std::string problem_of(const Process& process, const state::GroupRecord& group);
// The QP at the peer's end: "QP 0x2b of 10.0.0.2".
std::string peer_of(const state::GroupRecord& group);

// Whether the process keeps away from the NIC by an operator's order.
bool is_drained(const Process& process, const std::string& nic);

// One NIC of the host, as all live processes see it.
struct Nic {
  std::string name;
  unsigned processes = 0;                    // that have it in a device group
  unsigned down = 0, drained = 0, late = 0;  // for so many of these
  unsigned qps = 0;                          // whose path it carries
  uint64_t stock_qps = 0;                    // made there, and not protected by the layer
  bool is_ordered = false;                   // an order names it as drained
};
std::vector<Nic> nics_of(const Host& host);  // by name; names that no device can have are left out

}  // namespace shift::ctl
