#include "state/hosts_file.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "util/trim.h"

namespace shift::state {
namespace {

constexpr size_t kAddressesMax = 16;

std::string_view next_word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line = trim(line.substr(end));
  return word;
}

bool gid_parse(std::string_view word, std::array<uint8_t, 16>& gid) {
  if (word.size() != 2 * gid.size()) return false;
  for (size_t i = 0; i < gid.size(); i++) {
    const char* const from = word.data() + 2 * i;
    const auto [end, error] = std::from_chars(from, from + 2, gid[i], 16);
    if (error != std::errc() || end != from + 2) return false;
  }
  return true;
}

bool line_parse(std::string_view text, HostLine& line) {
  std::string_view left = trim(text);
  if (!gid_parse(next_word(left), line.gid)) return false;
  const std::string_view seconds = next_word(left);
  const auto [end, error] =
      std::from_chars(seconds.data(), seconds.data() + seconds.size(), line.seen_s);
  if (error != std::errc() || end != seconds.data() + seconds.size()) return false;
  while (!left.empty()) {
    const std::string word(next_word(left));
    uint32_t ip_be = 0;
    if (line.addresses_be.size() == kAddressesMax || inet_pton(AF_INET, word.c_str(), &ip_be) != 1)
      return false;
    line.addresses_be.push_back(ip_be);
  }
  return true;
}

std::string line_text(const HostLine& line) {
  std::string text;
  char digits[3];
  for (const uint8_t byte : line.gid) {
    snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  text += ' ' + std::to_string(line.seen_s);
  char address[INET_ADDRSTRLEN];
  for (const uint32_t ip_be : line.addresses_be)
    if (inet_ntop(AF_INET, &ip_be, address, sizeof address) != nullptr)
      text.append(" ").append(address);
  return text + '\n';
}

}  // namespace

const std::vector<HostLine>& HostsFile::read() {
  std::string text;
  const FileVersion version =
      small_file_read(base_, uid_, kHostsName, kHostsFileMax, version_, text);
  if (version == version_) return lines_;
  version_ = version;
  changes_++;
  lines_.clear();
  std::string_view left = text;
  while (!left.empty()) {
    const size_t end = left.find('\n');
    HostLine line;
    if (end != std::string_view::npos && line_parse(left.substr(0, end), line))
      lines_.push_back(std::move(line));
    left = end == std::string_view::npos ? std::string_view{} : left.substr(end + 1);
  }
  return lines_;
}

void HostsFile::write(const std::vector<HostLine>& lines) {
  std::string text;
  for (const HostLine& line : lines) text += line_text(line);
  if (text.size() <= kHostsFileMax) (void)small_file_write(base_, uid_, kHostsName, text);
}

}  // namespace shift::state
