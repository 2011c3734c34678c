// Which NICs back each other. The layer's own code chooses (ops/pairing.h); this file only tells.
#include <infiniband/verbs.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <span>

#include "nics.h"
#include "ops/nic_facts.h"
#include "ops/pairing.h"
#include "topics.h"
#include "trouble.h"
#include "util/config.h"

namespace shift::verify {
namespace {

using ops::NicFacts;

std::string card_of(const NicFacts& facts) {
  if (facts.place.empty()) return "";
  const std::string& function = facts.place.back();
  return function.substr(0, function.rfind('.'));
}

// What is not known tells nothing apart.
bool is_unlike(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && a != b;
}

// The partner that SHIFT_PAIRS gives a NIC; -1: none.
int configured_partner(const std::vector<std::string>& names, const std::string& name) {
  for (const auto& group : config().groups) {
    const auto self = std::ranges::find(group, name);
    for (size_t step = 1; self != group.end() && step < group.size(); step++) {
      const size_t place = (static_cast<size_t>(self - group.begin()) + step) % group.size();
      const auto other = std::ranges::find(names, group[place]);
      if (other != names.end()) return static_cast<int>(other - names.begin());
    }
  }
  return -1;
}

}  // namespace

std::string pair_compare(const NicFacts& a, const NicFacts& b, std::string& remark) {
  std::string seen;
  const auto add = [&seen](const std::string& what) { seen += (seen.empty() ? "" : ", ") + what; };
  const auto object = [&remark](const std::string& what) {
    remark += (remark.empty() ? "" : "; ") + what;
  };
  if (is_unlike(a.kind, b.kind)) object("they are of different kinds");
  if (is_unlike(a.link_layer, b.link_layer))
    object("one is " + a.link_layer + ", the other " + b.link_layer);
  if (!a.gigabits || !b.gigabits) {
    add("speeds not both known");
  } else if (*a.gigabits != *b.gigabits) {
    object(text("one port has %.0f Gb/s, the other %.0f", *a.gigabits, *b.gigabits));
  } else {
    add(text("%.0f Gb/s each", *a.gigabits));
  }
  if (card_of(a).empty() || card_of(b).empty()) {
    add("cards not known");
  } else if (card_of(a) == card_of(b)) {
    object("they are ports of one card (" + card_of(a) + "), which may fail as a whole");
  } else {
    add("cards " + card_of(a) + " and " + card_of(b));
  }
  if (a.numa_node && b.numa_node && *a.numa_node != *b.numa_node) {
    object(text("NUMA nodes %d and %d", *a.numa_node, *b.numa_node));
  } else if (a.numa_node && b.numa_node) {
    add(text("NUMA node %d", *a.numa_node));
  }
  return seen;
}

Nics nics_read() {
  Nics nics;
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return nics;
  const std::span<ibv_device* const> devices(list, static_cast<size_t>(count));
  std::vector<NicFacts> facts;
  for (const ibv_device* device : devices) {
    nics.names.emplace_back(device->name);
    facts.push_back(ops::nic_facts(*device));
  }
  ops::port_speeds_read(devices, facts, std::chrono::milliseconds(config().command_ms));
  ibv_free_device_list(list);
  nics.is_configured = !config().groups.empty();
  nics.partners = ops::partners_of(facts);
  if (nics.is_configured) {
    for (size_t i = 0; i < facts.size(); i++)
      nics.partners[i] = configured_partner(nics.names, nics.names[i]);
  }
  for (size_t i = 0; i < facts.size(); i++) {
    nics.remarks.emplace_back();
    nics.reasons.emplace_back();
    if (nics.partners[i] < 0) continue;
    nics.reasons[i] =
        pair_compare(facts[i], facts[static_cast<size_t>(nics.partners[i])], nics.remarks[i]);
  }
  return nics;
}

std::vector<std::string> pair_choose(const Nics& nics, const std::vector<std::string>& wanted) {
  if (!wanted.empty()) return wanted;
  for (size_t i = 0; i < nics.names.size(); i++) {
    if (nics.partners[i] >= 0)
      return {nics.names[i], nics.names[static_cast<size_t>(nics.partners[i])]};
  }
  if (!nics.names.empty()) return {nics.names.front()};
  return {};
}

std::vector<std::string> network_devices(const std::string& nic) {
  std::set<std::string> found;
  const std::string folder = "/sys/class/infiniband/" + nic + "/ports/1/gid_attrs/ndevs";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::ifstream file(entry.path());
    std::string name;
    if (file >> name) found.insert(name);
  }
  return {found.begin(), found.end()};
}

Outcome check_pairing(const Subject& subject) {
  const Nics nics = nics_read();
  if (nics.names.empty()) return failure("this host has no RDMA device");
  const auto self = std::ranges::find(nics.names, subject.nics.front());
  if (self == nics.names.end()) return failure("there is no NIC " + subject.nics.front());
  const auto place = static_cast<size_t>(self - nics.names.begin());
  std::string all;
  for (size_t i = 0; i < nics.names.size(); i++) {
    all += (all.empty() ? "" : ", ") + nics.names[i] + " is backed by " +
           (nics.partners[i] < 0 ? "none" : nics.names[static_cast<size_t>(nics.partners[i])]);
  }
  if (nics.partners[place] < 0) return failure(all + (nics.is_configured ? " (SHIFT_PAIRS)" : ""));
  const std::string& partner = nics.names[static_cast<size_t>(nics.partners[place])];
  if (subject.nics.size() > 1 && partner != subject.nics[1]) {
    return warning(text("%s and %s are looked at, and the layer would have %s back %s",
                        subject.nics[0].c_str(), subject.nics[1].c_str(), partner.c_str(),
                        subject.nics[0].c_str()));
  }
  const std::string why = nics.is_configured ? "SHIFT_PAIRS says so" : nics.reasons[place];
  if (!nics.remarks[place].empty())
    return warning(self->c_str() + text(" and %s: %s (%s)", partner.c_str(),
                                        nics.remarks[place].c_str(), why.c_str()));
  return ok(all + " (" + why + ")");
}

}  // namespace shift::verify
