// The sysfs tree that the programs of an emulated host see: class/infiniband,
// class/infiniband_verbs and the PCI devices behind them. Written by `cxemu exec`, read by
// everybody; what changes is not read from there, see port_files.h.
#pragma once

#include <string>

#include "fabric/fabric.h"

namespace cxemu {

// Makes the tree of one host complete; what exists is left alone. Throws std::system_error or
// std::filesystem::filesystem_error.
void sysfs_tree_make(const Fabric&, int host, const std::string& root);

}  // namespace cxemu
