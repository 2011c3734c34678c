// Which NICs back each other when the configuration does not say it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "util/config.h"

namespace shift::ops {

// What is known of a NIC (ops/nic_facts.h). What is empty is not known, and tells no NICs apart.
struct NicFacts {
  std::string kind;                    // NICs of unlike kinds never back each other
  std::string link_layer;              // of its port, as in sysfs; likewise
  std::optional<double> gigabits;      // per second, of its port while that is active
  std::optional<double> bus_gigabits;  // per second, of its link to the PCI bus
  std::vector<std::string> place;      // the PCI devices from the root complex down to its function
  std::optional<int> numa_node;
};

// For each NIC, the place in the list of the one that backs it; -1: there is none that may.
//
// Two NICs fit each other the better, the more of this holds, in this order: they have one speed;
// they are on different cards, which do not fail together; they are at one NUMA node; the way
// between them is short; their names follow each other. NICs that fit best form pairs, so that each
// backs one other. One that is left over is backed by the NIC that fits it best.
std::vector<int> partners_of(const std::vector<NicFacts>& nics);

// Those that may back the NIC at that place of the list, the ones that fit it best first.
std::vector<int> all_backups_of(const std::vector<NicFacts>& nics, int nic);

// For each NIC of a group, whose first one is the default: what it can carry for the default,
// compared with the others, from 1 to 200. It is its port's speed, or that of its bus if that is
// slower, and less of it if the way from the default's memory is far: from another PCI switch, and
// still less from another NUMA node, or on the default's own card, whose bus both share: `distance`
// says how much is left. If a speed is not known, all count as alike in that.
std::vector<uint8_t> capacities_of(const std::vector<NicFacts>& group,
                                   const Config::Distance& distance);

// Whether the NICs' speeds may change that: some NIC may be backed by more than one other.
bool speeds_matter(const std::vector<NicFacts>& nics);

}  // namespace shift::ops
