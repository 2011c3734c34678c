// Produces the contents of a port's files.
#include "host/port_files.h"

#include <cstdio>
#include <cstdlib>

#include "fabric/flap.h"
#include "fabric/gid.h"
#include "fabric/net_device.h"

namespace cxemu {
namespace {

// A counter that no emulated NIC moves.
constexpr int kNever = -1;

struct HwName {
  const char* name;
  int counter;  // HwCounter or kNever
};
constexpr HwName hw(const char* name, HwCounter counter) {
  return {name, static_cast<int>(counter)};
}

// The names, and the order, of a ConnectX-6 Dx. icrc_errors has a place of its own.
constexpr HwName kHwNames[] = {
    hw("duplicate_request", HwCounter::kDuplicateRequest),
    hw("implied_nak_seq_err", HwCounter::kImpliedNakSeqErr),
    {"lifespan", kNever},
    hw("local_ack_timeout_err", HwCounter::kLocalAckTimeoutErr),
    {"np_cnp_sent", kNever},
    {"np_ecn_marked_roce_packets", kNever},
    hw("out_of_buffer", HwCounter::kOutOfBuffer),
    hw("out_of_sequence", HwCounter::kOutOfSequence),
    hw("packet_seq_err", HwCounter::kPacketSeqErr),
    hw("req_cqe_error", HwCounter::kReqCqeError),
    hw("req_cqe_flush_error", HwCounter::kReqCqeFlushError),
    hw("req_remote_access_errors", HwCounter::kReqRemoteAccessErrors),
    hw("req_remote_invalid_request", HwCounter::kReqRemoteInvalidRequest),
    hw("resp_cqe_error", HwCounter::kRespCqeError),
    hw("resp_cqe_flush_error", HwCounter::kRespCqeFlushError),
    hw("resp_local_length_error", HwCounter::kRespLocalLengthError),
    hw("resp_remote_access_errors", HwCounter::kRespRemoteAccessErrors),
    hw("rnr_nak_retry_err", HwCounter::kRnrNakRetryErr),
    {"roce_adp_retrans", kNever},
    {"roce_adp_retrans_to", kNever},
    {"roce_slow_restart", kNever},
    {"roce_slow_restart_cnps", kNever},
    {"roce_slow_restart_trans", kNever},
    {"rp_cnp_handled", kNever},
    {"rp_cnp_ignored", kNever},
    hw("rx_atomic_requests", HwCounter::kRxAtomicRequests),
    {"rx_icrc_encapsulated", kNever},
    hw("rx_read_requests", HwCounter::kRxReadRequests),
    hw("rx_write_requests", HwCounter::kRxWriteRequests),
};

constexpr const char* kPortNames[] = {
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
};

uint64_t port_counter(const FabricNic& nic, std::string_view name) {
  // Data is counted in words of four bytes.
  if (name == "port_xmit_data") return nic.tx_bytes.load() / 4;
  if (name == "port_rcv_data") return nic.rx_bytes.load() / 4;
  if (name == "port_xmit_packets" || name == "unicast_xmit_packets") return nic.tx_packets.load();
  if (name == "port_rcv_packets" || name == "unicast_rcv_packets") return nic.rx_packets.load();
  if (name == "link_downed") return nic.link_downed.load();
  return 0;
}

uint64_t hw_counter(const FabricNic& nic, const HwName& name) {
  if (std::string_view(name.name) == "rx_icrc_encapsulated") return nic.icrc_errors.load();
  return name.counter == kNever ? 0 : nic.get(static_cast<HwCounter>(name.counter));
}

// The number of a GID table entry at the end of a path; -1 for other paths.
int gid_index(std::string_view path, std::string_view folder) {
  if (!path.starts_with(folder) || path.size() != folder.size() + 1) return -1;
  const int index = path.back() - '0';
  return index >= 0 && index < kGidCount ? index : -1;
}

std::string state_text(const FabricNic& nic, uint64_t now_ns, bool physical) {
  const bool up = (faults_now(nic, now_ns) & (kLinkDown | kDead)) == 0;
  if (physical) return up ? "5: LinkUp" : "3: Disabled";
  return up ? "4: ACTIVE" : "1: DOWN";
}

}  // namespace

std::string hex_groups(const uint8_t* bytes, int count) {
  std::string text;
  for (int i = 0; i < count; i += 2) {
    char group[8];
    snprintf(group, sizeof group, "%s%02x%02x", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
    text += group;
  }
  return text;
}

std::string gid_text(const FabricNic& nic, int index) {
  uint8_t gid[16];
  nic_gid(nic, index, gid);
  return hex_groups(gid, 16);
}

std::map<std::string, uint64_t> port_counters(const FabricNic& nic, std::string_view folder) {
  std::map<std::string, uint64_t> all;
  if (folder == "counters/")
    for (const char* name : kPortNames) all[name] = port_counter(nic, name);
  if (folder == "hw_counters/")
    for (const HwName& name : kHwNames) all[name.name] = hw_counter(nic, name);
  return all;
}

std::vector<std::string> port_files() {
  std::vector<std::string> all = {"state", "phys_state"};
  for (const char* name : kPortNames) all.push_back(std::string("counters/") + name);
  for (const HwName& name : kHwNames) all.push_back(std::string("hw_counters/") + name.name);
  for (int i = 0; i < kGidCount; ++i)
    for (const char* folder : {"gids/", "gid_attrs/types/", "gid_attrs/ndevs/"})
      all.push_back(folder + std::to_string(i));
  return all;
}

bool port_file_text(const FabricNic& nic, std::string_view path, uint64_t now_ns,
                    std::string* text) {
  text->clear();
  if (path == "state" || path == "phys_state") {
    *text = state_text(nic, now_ns, path == "phys_state") + "\n";
    return true;
  }
  if (const int index = gid_index(path, "gids/"); index >= 0) {
    *text = gid_text(nic, index) + "\n";
    return true;
  }
  if (const int index = gid_index(path, "gid_attrs/types/"); index >= 0) {
    if (!gid_is_empty(nic, index)) *text = gid_is_roce_v2(index) ? "RoCE v2\n" : "IB/RoCE v1\n";
    return true;
  }
  if (const int index = gid_index(path, "gid_attrs/ndevs/"); index >= 0) {
    if (!gid_is_empty(nic, index))
      *text = std::string(net_device_of(gid_ipv4_be(nic, index)).name) + "\n";
    return true;
  }
  const size_t slash = path.find('/');
  if (slash == std::string_view::npos) return false;
  const auto counters = port_counters(nic, path.substr(0, slash + 1));
  const auto found = counters.find(std::string(path.substr(slash + 1)));
  if (found == counters.end()) return false;
  *text = std::to_string(found->second) + "\n";
  return true;
}

}  // namespace cxemu
