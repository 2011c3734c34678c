// Parses and applies places of NICs.
#include "fabric/place.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "fabric/parse_error.h"

namespace cxemu {
namespace {

constexpr uint32_t kSpeeds[] = {25, 50, 80, 160, 320, 640};  // PCIe 1 to 6, tenths of GT/s
constexpr uint32_t kWidths[] = {1, 2, 4, 8, 12, 16, 32};
constexpr int kMaxNodes = 64;
constexpr int kMaxCpus = 4096;

bool number_parse(const std::string& text, int max, int* out) {
  if (text.empty() || text.size() > 6 || text.find_first_not_of("0123456789") != std::string::npos)
    return false;
  *out = atoi(text.c_str());
  return *out <= max;
}

// DDDD:BB:DD.F in lower-case hexadecimal.
bool address_ok(const std::string& text) {
  constexpr char kForm[] = "xxxx:xx:xx.x";
  if (text.size() != sizeof kForm - 1) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = strchr("0123456789abcdef", text[i]) != nullptr;
    if (kForm[i] == 'x' ? !digit : text[i] != kForm[i]) return false;
  }
  return text[8] < '2' && text.back() < '8';  // 32 devices of 8 functions
}

bool speed_parse(const std::string& text, uint32_t* tenths) {
  for (const uint32_t known : kSpeeds) {
    const std::string shown = pci_speed_text(known);
    const std::string number = shown.substr(0, shown.find(' '));
    if (text != number && text + ".0" != number) continue;
    *tenths = known;
    return true;
  }
  return false;
}

bool word_parse(const std::string& word, NicWords* out, std::string* error) {
  const size_t equal = word.find('=');
  const std::string name = word.substr(0, equal);
  const std::string value = equal == std::string::npos ? "" : word.substr(equal + 1);
  if (name == "rate" || name == "rx") {
    uint64_t rate;
    if (!rate_parse(value, &rate))
      return fail(error, word, "wants a rate such as 200Mbit or 1.5Gbit, or off");
    (name == "rate" ? out->rate : out->rx) = rate;
    return true;
  }
  int number = 0;
  if (name == "pci") {
    if (!address_ok(value)) return fail(error, word, "wants an address such as 0000:17:00.0");
    out->pci = value;
  } else if (name == "numa") {
    if (value != "-1" && !number_parse(value, kMaxNodes - 1, &number))
      return fail(error, word, "wants the number of a node, or -1");
    out->numa = value == "-1" ? -1 : number;
  } else if (name == "speed") {
    uint32_t speed;
    if (!speed_parse(value, &speed))
      return fail(error, word, "wants 2.5, 5, 8, 16, 32 or 64, in GT/s");
    out->speed = speed;
  } else if (name == "width") {
    if (!number_parse(value, 32, &number) ||
        std::find(std::begin(kWidths), std::end(kWidths), number) == std::end(kWidths))
      return fail(error, word, "wants 1, 2, 4, 8, 12, 16 or 32 lanes");
    out->width = static_cast<uint32_t>(number);
  } else {
    return fail(error, word,
                "unknown; known are rate=RATE, rx=RATE, pci=ADDRESS, numa=N, speed=GT and "
                "width=LANES");
  }
  return true;
}

struct Switch {
  std::string bridges;
  std::optional<int> numa;
};

// The lines of a topology so far.
struct Topology {
  std::map<int, std::string> sockets;
  std::map<std::string, Switch> switches;
  std::map<int, PlacedNic> nics;
};

// Takes the words of the form NAME=VALUE with this name out of the list; empty: there is none.
std::string word_take(std::vector<std::string>* words, const std::string& name) {
  std::string value;
  std::erase_if(*words, [&](const std::string& word) {
    if (!word.starts_with(name + "=")) return false;
    value = word.substr(name.size() + 1);
    return true;
  });
  return value;
}

bool socket_line(Topology* topology, const std::string& name, std::vector<std::string> words,
                 std::string* error) {
  const std::string cpus = word_take(&words, "cpus");
  int number;
  std::vector<int> list;
  if (!number_parse(name, kMaxNodes - 1, &number) || !cpu_list_parse(cpus, &list) ||
      cpus.size() >= sizeof(NicPlace::cpus) || !words.empty())
    return fail(error, "socket", "wants N cpus=LIST, such as 0 cpus=0-15");
  topology->sockets[number] = cpus;
  return true;
}

bool switch_line(Topology* topology, const std::string& name, std::vector<std::string> words,
                 std::string* error) {
  const std::string pci = word_take(&words, "pci"), under = word_take(&words, "under");
  NicWords place;
  if (!nic_words_parse(words, &place, error)) return false;
  if (!address_ok(pci) || place.rate || place.rx || place.speed || place.width)
    return fail(error, "switch", "wants NAME pci=ADDRESS [under=NAME] [numa=N]");
  Switch made = {pci, place.numa};
  if (!under.empty()) {
    const auto above = topology->switches.find(under);
    if (above == topology->switches.end()) return fail(error, "under=" + under, "no such switch");
    made.bridges = above->second.bridges + "/" + pci;
    if (!made.numa) made.numa = above->second.numa;
  }
  if (made.bridges.size() >= sizeof(NicPlace::bridges))
    return fail(error, name, "too many switches one under the other");
  topology->switches[name] = made;
  return true;
}

bool nic_line(Topology* topology, const std::string& name, std::vector<std::string> words,
              std::string* error) {
  int index = 0;
  if (!name.starts_with("mlx5_") || !number_parse(name.substr(5), kMaxNicsPerHost - 1, &index))
    return fail(error, name, "wants mlx5_0 to mlx5_" + std::to_string(kMaxNicsPerHost - 1));
  if (topology->nics.contains(index)) return fail(error, name, "stands there twice");
  PlacedNic nic;
  const std::string below = word_take(&words, "switch");
  if (!nic_words_parse(words, &nic.words, error)) return false;
  if (!below.empty()) {
    const auto found = topology->switches.find(below);
    if (found == topology->switches.end()) return fail(error, "switch=" + below, "no such switch");
    if (!nic.words.pci) return fail(error, name, "below a switch it needs pci=ADDRESS");
    nic.bridges = found->second.bridges;
    if (!nic.words.numa) nic.words.numa = found->second.numa;
  }
  const auto socket = topology->sockets.find(nic.words.numa.value_or(0));
  if (socket != topology->sockets.end()) nic.cpus = socket->second;
  topology->nics[index] = nic;
  return true;
}

bool line_parse(Topology* topology, const std::string& line, std::string* error) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::string kind, name;
  if (!(stream >> kind)) return true;
  stream >> name;
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  if (kind == "socket") return socket_line(topology, name, words, error);
  if (kind == "switch") return switch_line(topology, name, words, error);
  if (kind == "nic") return nic_line(topology, name, words, error);
  return fail(error, kind, "wants socket, switch or nic");
}

// Two cards at one address, or a card at a bridge's, would hide each other.
bool addresses_check(const std::vector<PlacedNic>& nics, std::string* error) {
  std::map<std::string, int> seen;
  for (const PlacedNic& nic : nics) {
    if (!nic.words.pci) continue;
    if (++seen[*nic.words.pci] > 1) return fail(error, *nic.words.pci, "is given twice");
    for (const PlacedNic& other : nics)
      if (other.bridges.find(*nic.words.pci) != std::string::npos)
        return fail(error, *nic.words.pci, "is a switch's");
  }
  return true;
}

void text_set(char* to, size_t size, const std::string& text) {
  snprintf(to, size, "%s", text.c_str());
}

}  // namespace

bool nic_words_parse(const std::vector<std::string>& words, NicWords* out, std::string* error) {
  *out = {};
  for (const std::string& word : words)
    if (!word_parse(word, out, error)) return false;
  return true;
}

void nic_words_apply(FabricFile& fabric, FabricNic& nic, const NicWords& words) {
  NicPlace& place = nic.place;
  if (words.pci) text_set(place.pci, sizeof place.pci, *words.pci);
  if (words.numa) place.numa.store(*words.numa);
  if (words.speed) place.speed.store(*words.speed);
  if (words.width) place.width.store(*words.width);
  if (!words.rate && !words.rx) return;
  shape_set(fabric, nic, words.rate.value_or(nic.shape.tx_rate.load()),
            words.rx.value_or(nic.shape.rx_rate.load()));
  nic_changed(fabric, nic);
}

bool topology_parse(const std::string& text, const std::string& name, std::vector<PlacedNic>* out,
                    std::string* error) {
  Topology topology;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line_parse(&topology, line, error)) continue;
    *error = name + ":" + std::to_string(number) + ": " + *error;
    return false;
  }
  out->clear();
  for (const auto& [index, nic] : topology.nics) {
    if (static_cast<size_t>(index) != out->size())
      return fail(error, name, "has no mlx5_" + std::to_string(out->size()));
    out->push_back(nic);
  }
  if (out->empty()) return fail(error, name, "has no NIC");
  return addresses_check(*out, error) || fail(error, name, *error);
}

bool topology_holds(const Fabric& fabric, int host, const std::vector<PlacedNic>& nics) {
  if (fabric.host_nics(host) < static_cast<int>(nics.size())) return false;
  for (size_t i = 0; i < nics.size(); ++i) {
    const NicPlace& place = fabric.nic(host, static_cast<int>(i))->place;
    const NicWords& words = nics[i].words;
    if (nics[i].bridges != place.bridges || nics[i].cpus != place.cpus ||
        words.pci.value_or("") != place.pci || words.numa.value_or(0) != place.numa.load())
      return false;
  }
  return true;
}

void topology_apply(const Fabric& fabric, int host, const std::vector<PlacedNic>& nics) {
  for (size_t i = 0; i < nics.size(); ++i) {
    FabricNic& nic = *fabric.nic(host, static_cast<int>(i));
    nic.place.pci[0] = '\0';
    nic.place.numa.store(0);
    text_set(nic.place.bridges, sizeof nic.place.bridges, nics[i].bridges);
    text_set(nic.place.cpus, sizeof nic.place.cpus, nics[i].cpus);
    nic_words_apply(*fabric, nic, nics[i].words);
  }
}

bool cpu_list_parse(const std::string& text, std::vector<int>* cpus) {
  cpus->clear();
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    const size_t dash = range.find('-');
    int first, last;
    if (!number_parse(range.substr(0, dash), kMaxCpus - 1, &first)) return false;
    last = first;
    if (dash != std::string::npos && !number_parse(range.substr(dash + 1), kMaxCpus - 1, &last))
      return false;
    if (last < first || (!cpus->empty() && first <= cpus->back())) return false;
    for (int cpu = first; cpu <= last; ++cpu) cpus->push_back(cpu);
  }
  return !cpus->empty();
}

std::string pci_speed_text(uint32_t tenths) {
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GT/s PCIe";
}

}  // namespace cxemu
