// Finding what arguments name.
#include "host/cli/targets.h"

#include <filesystem>
#include <stdexcept>

#include "fabric/paths.h"

namespace cxemu {

Fabric fabric_open(const std::string& name) {
  if (!name_valid(name))
    throw std::runtime_error("fabric '" + name + "': 1 to 24 letters, digits, - and _");
  if (!std::filesystem::exists(fabric_file(name)))
    throw std::runtime_error("no fabric '" + name + "': 'cxemu exec' makes it");
  std::string error;
  Fabric fabric = Fabric::open(fabric_file(name), &error);
  if (!fabric) throw std::runtime_error(error);
  return fabric;
}

std::string device_name(const FabricNic& nic) {
  return "mlx5_" + std::to_string(nic.index);
}

FabricNic* target_find(const Fabric& fabric, const std::string& target, int* host) {
  const size_t slash = target.find('/');
  const std::string host_name = target.substr(0, slash);
  const std::string device = slash == std::string::npos ? "" : target.substr(slash + 1);
  *host = fabric.host_find(host_name);
  if (*host < 0) throw std::runtime_error("no host '" + host_name + "' in the fabric");
  for (int i = 0; i < fabric.host_nics(*host); ++i)
    if (FabricNic* nic = fabric.nic(*host, i); device == device_name(*nic)) return nic;
  throw std::runtime_error("'" + target + "': host " + host_name + " has mlx5_0 to mlx5_" +
                           std::to_string(fabric.host_nics(*host) - 1));
}

}  // namespace cxemu
