// Finds objects by their names.
#include "host/cli/target.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <time.h>

#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "fabric/paths.h"
#include "host/cli/calibration.h"

namespace cxemu {

Fabric fabric_open(const std::string& name) {
  if (!name_valid(name))
    throw std::runtime_error("fabric '" + name + "': 1 to 24 letters, digits, - and _");
  if (!std::filesystem::exists(fabric_file(name)))
    throw std::runtime_error("no fabric '" + name + "': 'cxemu exec' makes it");
  std::string error;
  Fabric fabric = Fabric::open(fabric_file(name), &error);
  if (!fabric) throw std::runtime_error(error);
  if (const uint64_t rate = calibration_read(); rate != 0) fabric->machine_rate.store(rate);
  return fabric;
}

FabricNic& target_find(const Fabric& fabric, const std::string& target) {
  std::string error;
  FabricNic* nic = nic_by_name(*fabric, target, &error);
  if (nic == nullptr) throw std::runtime_error(error);
  return *nic;
}

bool target_fault(const Fabric& fabric, const std::string& fabric_name, const FaultTarget& target,
                  const FaultCommand& fault, std::string* error) {
  if (target.nic != nullptr) return fault_apply(*fabric, *target.nic, fault, monotonic_ns(), error);
  host_fault_apply(*fabric, target.host, fault, fabric_file(fabric_name),
                   host_sysfs_dir(fabric_dir(fabric_name), fabric->host_name[target.host]),
                   monotonic_ns());
  return true;
}

std::string address_text(uint32_t ipv4_be) {
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &ipv4_be, text, sizeof text);
  return text;
}

std::string device_name(const FabricNic& nic) {
  return "mlx5_" + std::to_string(nic.index);
}

const char* qp_type_name(uint32_t type) {
  switch (type) {
    case IBV_QPT_RC:
      return "RC";
    case IBV_QPT_UC:
      return "UC";
    case IBV_QPT_UD:
      return "UD";
    case IBV_QPT_XRC_SEND:
      return "XRC_SEND";
    case IBV_QPT_XRC_RECV:
      return "XRC_RECV";
    case IBV_QPT_DRIVER:
      return "DRIVER";
    default:
      return "OTHER";
  }
}

const char* qp_state_name(uint32_t state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return state < std::size(kNames) ? kNames[state] : "UNKNOWN";
}

namespace {

std::string time_text(uint64_t realtime_ns, const char* format, bool utc, int digits) {
  const time_t seconds = static_cast<time_t>(realtime_ns / 1'000'000'000);
  tm parts{};
  if (utc)
    gmtime_r(&seconds, &parts);
  else
    localtime_r(&seconds, &parts);
  char text[64], fraction[16];
  strftime(text, sizeof text, format, &parts);
  snprintf(fraction, sizeof fraction, ".%09u", static_cast<unsigned>(realtime_ns % 1'000'000'000));
  return text + std::string(fraction, static_cast<size_t>(1 + digits));
}

}  // namespace

std::string clock_text(uint64_t realtime_ns) {
  return time_text(realtime_ns, "%H:%M:%S", false, 3);
}

std::string iso_text(uint64_t realtime_ns) {
  return time_text(realtime_ns, "%Y-%m-%dT%H:%M:%S", true, 6) + "Z";
}

}  // namespace cxemu
