// Parses and shows SHIFT_RENDEZVOUS.
#include "util/rendezvous_setting.h"

#include <algorithm>
#include <charconv>

namespace shift {
namespace {

constexpr std::string_view kScheme = "redis://";
constexpr size_t kHostMax = 253;  // the longest name that DNS has
constexpr size_t kPartMax = 1024;
constexpr size_t kPrefixMax = 64;
constexpr std::string_view kHidden = "***";

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool only_has(std::string_view s, std::string_view others) {
  return std::ranges::all_of(
      s, [&](char c) { return is_letter_or_digit(c) || others.find(c) != others.npos; });
}

// Takes what is before the first `end` off the text; all of it when there is none.
std::string_view take(std::string_view& text, char end) {
  const auto at = std::min(text.find(end), text.size());
  const auto part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

bool decode(std::string_view text, std::string& out) {
  out.clear();
  for (size_t i = 0; i < text.size(); i++) {
    unsigned code = static_cast<unsigned char>(text[i]);
    if (text[i] == '%') {
      if (i + 2 >= text.size()) return false;
      const char* const end = text.data() + i + 3;
      if (std::from_chars(text.data() + i + 1, end, code, 16).ptr != end) return false;
      i += 2;
    }
    if (code < 0x20 || code == 0x7f) return false;
    out += static_cast<char>(code);
  }
  return out.size() <= kPartMax;
}

bool parse_host(std::string_view& text, RedisServer& out) {
  if (text.starts_with('[')) {
    text.remove_prefix(1);
    out.host = take(text, ']');
    return out.host.find(':') != std::string::npos && only_has(out.host, ":.");
  }
  const auto end = std::min(text.find_first_of(":,"), text.size());
  out.host = text.substr(0, end);
  text.remove_prefix(end);
  return !out.host.empty() && out.host.size() <= kHostMax && only_has(out.host, ".-_");
}

bool parse_port(std::string_view text, uint16_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out != 0;
}

bool parse_option(std::string_view text, RedisServer& out) {
  if (text == "tls") return out.tls = true;
  const std::string_view name = take(text, '=');
  if (name == "ca") return decode(text, out.ca_file) && out.ca_file.starts_with('/');
  out.prefix = text;
  return name == "prefix" && !text.empty() && text.size() <= kPrefixMax && only_has(text, ".-_:");
}

bool parse_redis(std::string_view text, RedisServer& out) {
  text.remove_prefix(kScheme.size());
  if (const auto at = text.rfind('@'); at != text.npos) {
    std::string_view user = text.substr(0, at);
    text.remove_prefix(at + 1);
    const auto colon = user.find(':');
    if (colon == user.npos || !decode(user.substr(0, colon), out.user) ||
        !decode(user.substr(colon + 1), out.password) || out.password.empty())
      return false;
  }
  if (!parse_host(text, out) || !text.starts_with(':')) return false;
  text.remove_prefix(1);
  const bool has_options = text.find(',') != text.npos;
  if (!parse_port(take(text, ','), out.port)) return false;
  for (bool more = has_options; more;) {
    more = text.find(',') != text.npos;
    if (!parse_option(take(text, ','), out)) return false;
  }
  // Whoever names an authority wants TLS, and must not go without it unawares.
  return out.ca_file.empty() || out.tls;
}

// Commas and percent signs have a meaning in the setting, and blanks end it.
std::string encode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ',' || c == '%' || c == ' ' || c == '@') {
      constexpr std::string_view kHex = "0123456789abcdef";
      const auto code = static_cast<unsigned char>(c);
      (out += '%') += {kHex[code >> 4], kHex[code & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string RedisServer::name() const {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool rendezvous_parse(std::string_view text, RendezvousSetting& out) {
  RendezvousSetting found;
  found.tcp = false;
  while (!text.empty()) {
    const auto end = std::min(text.find_first_of(" \t"), text.size());
    const auto item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (item.empty()) continue;
    if (item == "tcp" && !found.tcp) {
      found.tcp = true;
    } else if (item.starts_with(kScheme) && !found.redis) {
      if (!parse_redis(item, found.redis.emplace())) return false;
    } else {
      return false;
    }
  }
  if (!found.tcp && !found.redis) return false;
  out = std::move(found);
  return true;
}

std::string rendezvous_show(const RendezvousSetting& setting) {
  std::string text = setting.tcp ? "tcp" : "";
  if (!setting.redis) return text;
  const RedisServer& server = *setting.redis;
  if (setting.tcp) text += ' ';
  text += kScheme;
  if (!server.password.empty()) {
    if (!server.user.empty()) text += kHidden;
    (text += ':') += kHidden;
    text += '@';
  }
  text += server.name();
  if (server.tls) text += ",tls";
  if (!server.ca_file.empty()) text += ",ca=" + encode(server.ca_file);
  if (server.prefix != RedisServer().prefix) text += ",prefix=" + server.prefix;
  return text;
}

}  // namespace shift
