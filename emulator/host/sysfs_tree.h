// The sysfs tree that the programs of an emulated host see: class/infiniband,
// class/infiniband_verbs and the PCI devices behind them. Written by `cxemu exec` and `cxemu
// fault`, read by everybody.
#pragma once

#include <string>

#include "fabric/fabric.h"

namespace cxemu {

// Makes the tree of one host complete; what exists is left alone. Throws std::system_error or
// std::filesystem::filesystem_error.
void sysfs_tree_make(const Fabric&, int host, const std::string& root);
// Brings the files that follow the NIC's faults up to date (port state).
void sysfs_port_update(const FabricNic&, const std::string& root);

}  // namespace cxemu
