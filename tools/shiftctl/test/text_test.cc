#include "../text.h"

#include <gtest/gtest.h>

#include <random>

namespace shift::ctl {
namespace {

TEST(Text, control_characters_and_what_is_no_utf8_are_escaped) {
  EXPECT_EQ(text_safe("mlx5_0 ä €"), "mlx5_0 ä €");
  EXPECT_EQ(text_safe("a\033[2J\n\x7f"), "a\\x1b[2J\\x0a\\x7f");
  EXPECT_EQ(text_safe("\xff"
                      "a\xc3"),
            "\\xffa\\xc3");
  EXPECT_EQ(text_safe("\xc0\x80"), "\\xc0\\x80");           // a second spelling of a zero
  EXPECT_EQ(text_safe("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a pair
  EXPECT_EQ(text_safe("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b"
            "2J");  // the other way to begin a sequence
  EXPECT_EQ(text_safe("a\xe2\x80\xae"
                      "b"),
            "a\\u{202e}b");  // it turns the direction
}

// Whether the bytes are UTF-8 without control characters, by other means than the code's own.
bool is_clean(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const size_t size = first < 0x80       ? 1
                        : first >> 5 == 6  ? 2
                        : first >> 4 == 14 ? 3
                        : first >> 3 == 30 ? 4
                                           : 0;
    if (size == 0 || i + size > text.size() || (size == 1 && (first < 0x20 || first == 0x7f)))
      return false;
    for (size_t k = 1; k < size; k++)
      if (static_cast<unsigned char>(text[i + k]) >> 6 != 2) return false;
    i += size;
  }
  return true;
}

TEST(Text, no_bytes_get_through_that_a_terminal_would_obey) {
  const char* const seed_text = std::getenv("SHIFT_TEST_SEED");
  const unsigned seed =
      seed_text != nullptr ? static_cast<unsigned>(std::atoi(seed_text)) : std::random_device()();
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; i++) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    ASSERT_TRUE(is_clean(text_safe(bytes))) << "seed " << seed;
  }
}

TEST(Text, times_and_numbers) {
  EXPECT_EQ(time_utc(1'700'000'000'123'456'789), "2023-11-14T22:13:20.123456Z");
  EXPECT_EQ(time_utc(-1), "1969-12-31T23:59:59.999999Z");
  EXPECT_NE(time_utc(INT64_MIN), "");
  EXPECT_NE(time_utc(INT64_MAX), "");
  EXPECT_EQ(hex(0x1f), "0x1f");
  EXPECT_EQ(count_of(1, "QP"), "1 QP");
  EXPECT_EQ(count_of(2, "process"), "2 processes");
  EXPECT_EQ(list_of({"a", "b", "c"}, 2), "a, b and 1 more");
  uint32_t number = 0;
  EXPECT_TRUE(number_read("4711", 10, number));
  EXPECT_EQ(number, 4711u);
  for (const char* wrong : {"", "-1", "1x", " 1", "4294967296"})
    EXPECT_FALSE(number_read(wrong, 10, number)) << wrong;
}

TEST(Text, a_gid_is_an_ipv4_address_where_it_holds_one) {
  EXPECT_EQ(gid_text({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}), "10.0.0.2");
  EXPECT_EQ(gid_text({0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}), "fe80::1");
}

TEST(Text, columns_are_as_wide_as_their_widest_text) {
  EXPECT_EQ(table({{"A", "B"}, {"long", ""}, {"ä", "x"}}), "A     B\nlong\nä     x\n");
}

}  // namespace
}  // namespace shift::ctl
