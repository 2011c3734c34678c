// Writes and reads the store's lines.
#include "net/host_entry.h"

#include <arpa/inet.h>

#include <algorithm>

#include "net/socket.h"

namespace shift::net {
namespace {

constexpr std::string_view kVersion = "1";
constexpr size_t kVersionMax = 4;  // digits
constexpr uint32_t kLoopback = 127;

// Only the usual form counts, so that one address has one text.
bool parse_ip(std::string_view text, uint32_t& ip_be) {
  const std::string copy(text);
  return inet_pton(AF_INET, copy.c_str(), &ip_be) == 1 && copy == IpText(ip_be).c_str();
}

}  // namespace

std::string host_entry_key(std::string_view prefix, const wire::Gid& gid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string key(prefix);
  key += ":gid:";
  for (const uint8_t byte : gid.raw) (key += kDigits[byte >> 4]) += kDigits[byte & 15];
  return key;
}

bool may_be_a_hosts(uint32_t ip_be, bool on_loopback) {
  const uint32_t first = ntohl(ip_be) >> 24;
  return first != 0 && first < 224 && (first != kLoopback || on_loopback);
}

std::string host_entry_line(std::vector<uint32_t> ips_be, bool on_loopback) {
  std::erase_if(ips_be, [&](uint32_t ip) { return !may_be_a_hosts(ip, on_loopback); });
  std::ranges::sort(ips_be, {}, ntohl);
  ips_be.erase(std::unique(ips_be.begin(), ips_be.end()), ips_be.end());
  if (ips_be.empty()) return {};
  if (ips_be.size() > kHostAddressesMax) ips_be.resize(kHostAddressesMax);
  std::string line(kVersion);
  for (const uint32_t ip : ips_be) (line += ' ') += IpText(ip).c_str();
  return line;
}

HostEntry host_entry_parse(std::string_view line, bool on_loopback, std::vector<uint32_t>& ips_be) {
  const auto end = line.find(' ');
  const auto version = line.substr(0, end);
  const bool is_number = !version.empty() && version.size() <= kVersionMax &&
                         std::ranges::all_of(version, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return HostEntry::kBad;
  if (version != kVersion) return HostEntry::kOtherVersion;
  std::vector<uint32_t> found;
  for (auto at = end; at != line.npos;) {
    const auto next = line.find(' ', at + 1);
    uint32_t ip = 0;
    if (found.size() == kHostAddressesMax || !parse_ip(line.substr(at + 1, next - at - 1), ip) ||
        !may_be_a_hosts(ip, on_loopback))
      return HostEntry::kBad;
    found.push_back(ip);
    at = next;
  }
  if (found.empty()) return HostEntry::kBad;
  ips_be.insert(ips_be.end(), found.begin(), found.end());
  return HostEntry::kGood;
}

}  // namespace shift::net
