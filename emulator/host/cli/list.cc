// `cxemu list`: shows hosts, NICs with their faults and counters, processes and queue pairs.
#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fabric/fault.h"
#include "fabric/gid.h"
#include "host/cli/commands.h"
#include "host/cli/target.h"
#include "host/port_files.h"

namespace cxemu {
namespace {

using nlohmann::json;

bool alive(int32_t pid) {
  return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
}

// The program's name as the kernel has it; empty when the process has just ended.
std::string program_name(int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

json rules_json(const FabricFile& fabric, const FabricNic& nic) {
  json rules = json::array();
  for (const FaultRule& rule : nic.rules) {
    RuleCopy copy;
    if (!rule_read(rule, &copy)) continue;
    rules.push_back({{"rule", rule_describe(fabric, copy.spec)},
                     {"seed", copy.spec.seed},
                     {"matched", rule.matched.load()},
                     {"affected", rule.struck.load()}});
  }
  return rules;
}

json qps_json(const FabricFile& fabric, const FabricNic& nic) {
  json qps = json::array();
  for (const FabricQp& qp : fabric.qp) {
    const int32_t pid = qp.pid.load(std::memory_order_acquire);
    if (pid <= 0 || qp.nic.load() != nic_number(fabric, nic) || !alive(pid)) continue;
    const uint32_t peer = qp.peer_ipv4_be.load();
    qps.push_back({{"qpn", qp.number.load()},
                   {"pid", pid},
                   {"type", qp_type_name(qp.type.load())},
                   {"state", qp_state_name(qp.state.load())},
                   {"peer_address", peer == 0 ? "" : address_text(peer)},
                   {"peer_qpn", qp.peer_number.load()},
                   {"sq_psn", qp.sq_psn.load()},
                   {"rq_psn", qp.rq_psn.load()},
                   {"syndrome", qp.syndrome.load()}});
  }
  return qps;
}

json gids_json(const FabricNic& nic) {
  json gids = json::array();
  for (int i = 0; i < kGidCount; ++i) {
    if (gid_is_empty(nic, i)) continue;
    gids.push_back({{"index", i},
                    {"gid", gid_text(nic, i)},
                    {"type", gid_is_roce_v2(i) ? "RoCE v2" : "RoCE v1"}});
  }
  return gids;
}

json nic_json(FabricFile& fabric, FabricNic& nic) {
  const uint64_t now_ns = monotonic_ns();
  flap_settle(fabric, nic, now_ns);
  const uint32_t faults = faults_now(nic, now_ns);
  return {{"device", device_name(nic)},
          {"address", address_text(nic.ipv4_be)},
          {"state", fault_describe(fabric, nic, now_ns)},
          {"port", (faults & kDead) != 0       ? "dead"
                   : (faults & kLinkDown) != 0 ? "down"
                                               : "active"},
          {"rate", nic.shape.tx_rate.load()},
          {"rx_rate", nic.shape.rx_rate.load()},
          {"pci", nic.place.pci},
          {"numa", nic.place.numa.load()},
          {"kills", nic.kills.load()},
          {"tx_packets", nic.tx_packets.load()},
          {"rx_packets", nic.rx_packets.load()},
          {"tx_bytes", nic.tx_bytes.load()},
          {"rx_bytes", nic.rx_bytes.load()},
          {"dropped_packets", nic.dropped_packets.load()},
          {"retransmits", nic.retransmits.load()},
          {"qp_errors", nic.qp_errors.load()},
          {"icrc_errors", nic.icrc_errors.load()},
          {"held_commands", nic.held_commands.load()},
          {"counters", port_counters(nic, "counters/")},
          {"hw_counters", port_counters(nic, "hw_counters/")},
          {"gids", gids_json(nic)},
          {"rules", rules_json(fabric, nic)},
          {"qps", qps_json(fabric, nic)}};
}

json processes_json(const FabricFile& fabric, uint32_t host) {
  json processes = json::array();
  for (const FabricProcess& process : fabric.process) {
    const int32_t pid = process.pid.load(std::memory_order_acquire);
    if (process.host.load(std::memory_order_acquire) != host || !alive(pid)) continue;
    int qps = 0;
    for (const FabricQp& qp : fabric.qp) qps += qp.pid.load() == pid ? 1 : 0;
    processes.push_back({{"pid", pid}, {"program", program_name(pid)}, {"qps", qps}});
  }
  return processes;
}

json fabric_json(const std::string& name, const Fabric& fabric) {
  json hosts = json::array();
  const int count = static_cast<int>(fabric->host_count.load(std::memory_order_acquire));
  for (int host = 0; host < count; ++host) {
    json nics = json::array();
    for (int i = 0; i < fabric.host_nics(host); ++i)
      nics.push_back(nic_json(*fabric, *fabric.nic(host, i)));
    hosts.push_back({{"host", fabric->host_name[host]},
                     {"processes", fabric.process_count(host)},
                     {"process_list", processes_json(*fabric, static_cast<uint32_t>(host))},
                     {"nics", nics}});
  }
  return {{"fabric", name},
          {"network", "127." + std::to_string(fabric->net) + ".0.0/16"},
          {"hosts", hosts}};
}

std::string text_of(const json& object, const char* key) {
  return object[key].get<std::string>();
}
unsigned long long number_of(const json& object, const char* key) {
  return object[key].get<unsigned long long>();
}

void nic_print(const json& nic) {
  printf("  %-7s %-15s %-6s %-20s tx %llu rx %llu dropped %llu retransmits %llu\n",
         text_of(nic, "device").c_str(), text_of(nic, "address").c_str(),
         text_of(nic, "port").c_str(), text_of(nic, "state").c_str(), number_of(nic, "tx_packets"),
         number_of(nic, "rx_packets"), number_of(nic, "dropped_packets"),
         number_of(nic, "retransmits"));
  if ((number_of(nic, "rate") | number_of(nic, "rx_rate")) != 0)
    printf("    rate  %s rx %s\n", rate_text(number_of(nic, "rate")).c_str(),
           rate_text(number_of(nic, "rx_rate")).c_str());
  for (const json& rule : nic["rules"])
    printf("    rule  %-40s matched %llu affected %llu seed %llu\n", text_of(rule, "rule").c_str(),
           number_of(rule, "matched"), number_of(rule, "affected"), number_of(rule, "seed"));
  for (const json& qp : nic["qps"]) {
    printf("    qp    %-9llu %-4s %-5s pid %-8llu peer %s qpn %llu psn %llu/%llu",
           number_of(qp, "qpn"), text_of(qp, "type").c_str(), text_of(qp, "state").c_str(),
           number_of(qp, "pid"), text_of(qp, "peer_address").c_str(), number_of(qp, "peer_qpn"),
           number_of(qp, "sq_psn"), number_of(qp, "rq_psn"));
    if (number_of(qp, "syndrome") != 0) printf(" syndrome 0x%02llx", number_of(qp, "syndrome"));
    printf("\n");
  }
}

}  // namespace

int list_run(const std::string& fabric_name, bool as_json) {
  const Fabric fabric = fabric_open(fabric_name);
  const json shown = fabric_json(fabric_name, fabric);
  if (as_json) {
    printf("%s\n", shown.dump(2).c_str());
    return 0;
  }
  printf("fabric %s, network %s\n", fabric_name.c_str(), text_of(shown, "network").c_str());
  for (const json& host : shown["hosts"]) {
    printf("host %s, %d process(es)\n", text_of(host, "host").c_str(),
           host["processes"].get<int>());
    for (const json& process : host["process_list"])
      printf("  process %-7llu %-15s %llu qp(s)\n", number_of(process, "pid"),
             text_of(process, "program").c_str(), number_of(process, "qps"));
    for (const json& nic : host["nics"]) nic_print(nic);
  }
  return 0;
}

}  // namespace cxemu
