#include "text.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>

namespace shift::ctl {

namespace {

// The bytes of the character that the text begins with, and the character; 0 if it is no UTF-8.
size_t character_read(std::string_view text, uint32_t& character) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return character = first, 1;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  character = first & (0x7fu >> size);
  for (size_t i = 1; i < size; i++) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    character = character << 6 | (byte(i) & 0x3f);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // less would be a second spelling
  const bool is_surrogate = character >= 0xd800 && character <= 0xdfff;
  return character < kLeast[size] || character > 0x10ffff || is_surrogate ? 0 : size;
}

bool is_control(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

// These change the order in which a terminal shows what stands around them, or end a line.
bool is_treacherous(uint32_t c) {
  return c == 0x61c || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
         (c >= 0x2066 && c <= 0x2069) || c == 0xfeff;
}

std::string time_format(int64_t ns, const char* format, bool is_local, int64_t& rest_ns) {
  constexpr int64_t kSecond = 1000000000;
  rest_ns = (ns % kSecond + kSecond) % kSecond;
  const time_t seconds = static_cast<time_t>(ns / kSecond - (ns % kSecond < 0 ? 1 : 0));
  struct tm parts {};
  if ((is_local ? localtime_r(&seconds, &parts) : gmtime_r(&seconds, &parts)) == nullptr)
    return "?";
  char text[64];
  return std::string(text, strftime(text, sizeof text, format, &parts));
}

// Columns in a terminal, as far as a byte count is wrong: continuation bytes take none.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

}  // namespace

std::string text_safe(std::string_view text) {
  std::string safe;
  char escape[16];
  while (!text.empty()) {
    uint32_t character = 0;
    const size_t size = character_read(text, character);
    if (size == 0 || is_control(character)) {
      snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(text[0]));
      safe += escape;
      text.remove_prefix(1);
      continue;
    }
    if (is_treacherous(character)) {
      snprintf(escape, sizeof escape, "\\u{%x}", character);
      safe += escape;
    } else {
      safe += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return safe;
}

std::string text_short(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) end--;
  return text.substr(0, end) + "...";
}

std::string hex(uint32_t number) {
  char text[16];
  snprintf(text, sizeof text, "0x%x", number);
  return text;
}

std::string gid_text(const std::array<uint8_t, 16>& gid) {
  constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  char text[INET6_ADDRSTRLEN] = "";
  if (std::memcmp(gid.data(), kMapped, sizeof kMapped) == 0)
    inet_ntop(AF_INET, gid.data() + sizeof kMapped, text, sizeof text);
  else
    inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  return text;
}

std::string time_local(int64_t ns) {
  int64_t rest = 0;
  return time_format(ns, "%Y-%m-%d %H:%M:%S", true, rest);
}

std::string time_utc(int64_t ns) {
  int64_t rest = 0;
  const std::string text = time_format(ns, "%Y-%m-%dT%H:%M:%S", false, rest);
  char end[16];
  snprintf(end, sizeof end, ".%06dZ", static_cast<int>(rest / 1000));
  return text + end;
}

std::string count_of(uint64_t number, std::string_view noun) {
  return std::to_string(number) + " " + std::string(noun) +
         (number == 1                                ? ""
          : noun.ends_with('s') || noun == "process" ? "es"
                                                     : "s");
}

std::string list_of(const std::vector<std::string>& texts, size_t most) {
  std::string line;
  for (size_t i = 0; i < texts.size() && i < most; i++) line += (i == 0 ? "" : ", ") + texts[i];
  if (texts.size() > most) line += " and " + std::to_string(texts.size() - most) + " more";
  return line;
}

std::string table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); i++) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); i++)
      line += row[i] + std::string(widths[i] - width_of(row[i]) + 2, ' ');
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

bool number_read(std::string_view text, int base, uint32_t& number) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, base);
  return error == std::errc() && rest == end && !text.empty();
}

}  // namespace shift::ctl
