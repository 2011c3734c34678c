// Texts for people and programs. What a state file holds comes from a stranger, so nothing of it
// gets to a terminal before it went through text_safe().
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shift::ctl {

// The text as valid UTF-8. Control characters, bytes that are no UTF-8, and characters that turn
// the direction of writing are replaced by \xNN or \u{N}.
std::string text_safe(std::string_view text);

// Up to `most` bytes of the text, with "..." where something was cut.
std::string text_short(const std::string& text, size_t most);

std::string hex(uint32_t number);                      // 0x1f
std::string gid_text(const std::array<uint8_t, 16>&);  // an IPv4 address where the GID holds one
std::string time_local(int64_t ns);                    // 2026-01-31 12:00:00
std::string time_utc(int64_t ns);                      // 2026-01-31T12:00:00.000000Z

// "1 QP", "2 QPs"; the plural only adds an s.
std::string count_of(uint64_t number, std::string_view noun);

// The first texts with commas between them, and how many more there are.
std::string list_of(const std::vector<std::string>& texts, size_t most);

// A table whose columns are as wide as their widest text; the first row holds the headings.
std::string table(const std::vector<std::vector<std::string>>& rows);

// 0x1f or 31, and nothing behind it.
bool number_read(std::string_view text, int base, uint32_t& number);

}  // namespace shift::ctl
