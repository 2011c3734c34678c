// Where the NICs of a host sit: PCI addresses, switches and sockets, and how they are described: by
// the words of `cxemu nic`, or by the lines of a topology file.
//
//   socket N cpus=LIST
//   switch NAME pci=ADDRESS [under=NAME] [numa=N]
//   nic DEVICE [switch=NAME] [WORD...]
//
// WORD is rate=RATE, rx=RATE, pci=ADDRESS, numa=N, speed=GT or width=LANES.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/fabric.h"

namespace cxemu {

// What words say of one NIC; what they do not say stays as it is.
struct NicWords {
  std::optional<uint64_t> rate, rx;
  std::optional<std::string> pci;
  std::optional<int> numa;
  std::optional<uint32_t> speed, width;  // speed: tenths of GT/s
};
bool nic_words_parse(const std::vector<std::string>& words, NicWords* out, std::string* error);
void nic_words_apply(FabricFile&, FabricNic&, const NicWords&);

// One NIC of a topology.
struct PlacedNic {
  NicWords words;
  std::string bridges;  // their addresses, from the root on, with "/" between them
  std::string cpus;     // of its socket; empty: all of the machine
};
// By number of the NIC. Every NIC up to the last must be named. `name`: of the file, for *error.
bool topology_parse(const std::string& text, const std::string& name, std::vector<PlacedNic>* out,
                    std::string* error);
// Whether the NICs of the host are where the topology puts them.
bool topology_holds(const Fabric&, int host, const std::vector<PlacedNic>&);
// Places and rates. No process may run on the host.
void topology_apply(const Fabric&, int host, const std::vector<PlacedNic>&);

// "0-3,8": processor numbers in order. Returns false if it is no such list.
bool cpu_list_parse(const std::string& text, std::vector<int>* cpus);
// As "16.0 GT/s PCIe".
std::string pci_speed_text(uint32_t tenths);

}  // namespace cxemu
