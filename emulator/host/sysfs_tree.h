// The sysfs tree that the programs of an emulated host see: class/infiniband,
// class/infiniband_verbs and the PCI devices that these refer to. `cxemu exec` writes it and all
// programs read it; content that changes is not read from there, see port_files.h.
#pragma once

#include <string>

#include "fabric/fabric.h"

namespace cxemu {

// Completes the tree of one host; existing files stay as they are. Throws std::system_error or
// std::filesystem::filesystem_error.
void sysfs_tree_make(const Fabric&, int host, const std::string& root);

// Nodes and links of the NICs have changed.
void sysfs_tree_refresh(const Fabric&, int host, const std::string& root);
// Addresses have changed: the tree is made anew. No process may run on the host.
void sysfs_tree_renew(const Fabric&, int host, const std::string& root);

}  // namespace cxemu
