// `cxemu fault`, `cxemu list` and `cxemu clean`.
#include <arpa/inet.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fabric/fabric.h"
#include "fabric/fault.h"
#include "fabric/net.h"
#include "fabric/paths.h"
#include "host/cli/commands.h"
#include "host/cli/targets.h"
#include "host/sysfs_tree.h"

namespace cxemu {
namespace {

namespace fs = std::filesystem;

std::string address_text(const FabricNic& nic) {
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &nic.ipv4_be, text, sizeof text);
  return text;
}

nlohmann::json nic_json(const FabricNic& nic) {
  return {{"device", device_name(nic)},
          {"address", address_text(nic)},
          {"state", fault_describe(nic)},
          {"kills", nic.kills.load()},
          {"tx_packets", nic.tx_packets.load()},
          {"rx_packets", nic.rx_packets.load()},
          {"dropped_packets", nic.dropped_packets.load()},
          {"retransmits", nic.retransmits.load()},
          {"qp_errors", nic.qp_errors.load()},
          {"icrc_errors", nic.icrc_errors.load()}};
}

nlohmann::json fabric_json(const std::string& name, const Fabric& fabric) {
  nlohmann::json hosts = nlohmann::json::array();
  const int count = static_cast<int>(fabric->host_count.load(std::memory_order_acquire));
  for (int host = 0; host < count; ++host) {
    nlohmann::json nics = nlohmann::json::array();
    for (int i = 0; i < fabric.host_nics(host); ++i) nics.push_back(nic_json(*fabric.nic(host, i)));
    hosts.push_back({{"host", fabric->host_name[host]},
                     {"processes", fabric.process_count(host)},
                     {"nics", nics}});
  }
  return {{"fabric", name},
          {"network", "127." + std::to_string(fabric->net) + ".0.0/16"},
          {"hosts", hosts}};
}

void fabric_remove(const std::string& name) {
  const std::string file = fabric_file(name);
  std::string error;
  const Fabric fabric = Fabric::open(file, &error);
  if (fabric) {
    if (const int users = fabric.process_count(-1); users > 0)
      throw std::runtime_error("fabric " + name + ": " + std::to_string(users) +
                               " running process(es) use it");
    net_release("/tmp", fabric->net, file);
  }
  fs::remove_all(fabric_dir(name));
}

}  // namespace

int fault_run(const std::string& fabric_name, const std::string& target,
              const std::vector<std::string>& words) {
  const Fabric fabric = fabric_open(fabric_name);
  int host;
  FabricNic* nic = target_find(fabric, target, &host);
  std::vector<FaultCommand> commands(words.size());
  std::string error;
  for (size_t i = 0; i < words.size(); ++i)  // all are good, or none is applied
    if (!fault_parse(words[i], &commands[i], &error)) throw std::runtime_error(error);
  for (const FaultCommand& command : commands) fault_apply(fabric, nic, command);
  sysfs_port_update(*nic, host_sysfs_dir(fabric_dir(fabric_name), fabric->host_name[host]));
  return 0;
}

int list_run(const std::string& fabric_name, bool json) {
  const Fabric fabric = fabric_open(fabric_name);
  const nlohmann::json shown = fabric_json(fabric_name, fabric);
  if (json) {
    printf("%s\n", shown.dump(2).c_str());
    return 0;
  }
  printf("fabric %s, network %s\n", fabric_name.c_str(),
         shown["network"].get<std::string>().c_str());
  for (const auto& host : shown["hosts"]) {
    printf("host %s, %d process(es)\n", host["host"].get<std::string>().c_str(),
           host["processes"].get<int>());
    for (const auto& nic : host["nics"])
      printf("  %-7s %-16s %-20s tx %llu rx %llu dropped %llu retransmits %llu\n",
             nic["device"].get<std::string>().c_str(), nic["address"].get<std::string>().c_str(),
             nic["state"].get<std::string>().c_str(), nic["tx_packets"].get<unsigned long long>(),
             nic["rx_packets"].get<unsigned long long>(),
             nic["dropped_packets"].get<unsigned long long>(),
             nic["retransmits"].get<unsigned long long>());
  }
  return 0;
}

int clean_run(const std::string& fabric_name, bool all) {
  if (!all) {
    if (!name_valid(fabric_name) || !fs::exists(fabric_dir(fabric_name)))
      throw std::runtime_error("no fabric '" + fabric_name + "'");
    fabric_remove(fabric_name);
    return 0;
  }
  int status = 0;
  if (!fs::exists(fabrics_dir())) return 0;
  for (const auto& entry : fs::directory_iterator(fabrics_dir())) {
    try {
      if (entry.is_directory()) fabric_remove(entry.path().filename().string());
    } catch (const std::runtime_error& error) {
      fprintf(stderr, "cxemu: %s\n", error.what());
      status = 1;
    }
  }
  return status;
}

}  // namespace cxemu
