// `cxemu nic` and the topology files of `cxemu exec`.
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "fabric/paths.h"
#include "fabric/place.h"
#include "host/cli/commands.h"
#include "host/cli/target.h"
#include "host/sysfs_tree.h"

namespace cxemu {
namespace {

std::string tree_of(const std::string& fabric_name, const Fabric& fabric, int host) {
  return host_sysfs_dir(fabric_dir(fabric_name), fabric->host_name[host]);
}

void idle_check(const Fabric& fabric, int host) {
  if (const int count = fabric.process_count(host); count > 0)
    throw std::runtime_error(std::string("host ") + fabric->host_name[host] + " has " +
                             std::to_string(count) +
                             " running process(es), and its NICs cannot move meanwhile");
}

}  // namespace

int nic_run(const std::string& fabric_name, const std::string& target,
            const std::vector<std::string>& words) {
  const Fabric fabric = fabric_open(fabric_name);
  FabricNic& nic = target_find(fabric, target);
  const int host = static_cast<int>(nic.host);
  NicWords parsed;
  std::string error;
  if (!nic_words_parse(words, &parsed, &error)) throw std::runtime_error(error);
  if (parsed.pci) {
    idle_check(fabric, host);
    for (int i = 0; i < fabric.host_nics(host); ++i)
      if (fabric.nic(host, i) != &nic && *parsed.pci == fabric.nic(host, i)->place.pci)
        throw std::runtime_error("pci=" + *parsed.pci + ": another NIC of the host is there");
  }
  nic_words_apply(*fabric, nic, parsed);
  const std::string tree = tree_of(fabric_name, fabric, host);
  if (parsed.pci)
    sysfs_tree_renew(fabric, host, tree);
  else if (parsed.numa || parsed.speed || parsed.width)
    sysfs_tree_refresh(fabric, host, tree);
  return 0;
}

std::vector<PlacedNic> topology_read(const std::string& path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  if (!file) throw std::runtime_error(path + ": " + strerror(errno));
  std::vector<PlacedNic> nics;
  std::string error;
  if (!topology_parse(text, path, &nics, &error)) throw std::runtime_error(error);
  return nics;
}

void topology_set(const std::string& fabric_name, const Fabric& fabric, int host,
                  const std::vector<PlacedNic>& nics) {
  idle_check(fabric, host);
  topology_apply(fabric, host, nics);
  sysfs_tree_renew(fabric, host, tree_of(fabric_name, fabric, host));
}

}  // namespace cxemu
