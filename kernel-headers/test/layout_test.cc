// Compares the layout of all messages in the plain header with the bytes of the codec; and shows
// that the comparison notices each field that has moved.
#include <gtest/gtest.h>

#include <utility>

#include "test/bodies.h"
#include "test/plain.h"

namespace shift::header {
namespace {

// A message with distinctive values, its bytes by the codec, and where the header has them.
struct Sample {
  const char* name = "";
  int type = 0;     // in the header
  size_t head = 0;  // the size of the struct that begins the body
  wire::Message message;
  std::vector<uint8_t> frame;
  std::vector<Field> fields;
  std::vector<std::string> wrong;
};

constexpr uint64_t kSequence = 0x0123456789abcdef;

template <size_t Index>
Sample sample() {
  Sample s;
  Layout layout(Index + 1);
  layout.begin(sizeof(shift_wire_header));
  std::variant_alternative_t<Index, wire::Message> message;
  Layout measured(0);
  s.type = body(measured, message);
  s.head = measured.parts().front();
  SHIFT_FIXED(layout, shift_wire_header, magic, uint32_t{SHIFT_WIRE_MAGIC});
  SHIFT_FIXED(layout, shift_wire_header, version, SHIFT_WIRE_VERSION);
  SHIFT_FIXED(layout, shift_wire_header, type, s.type);
  SHIFT_FIXED(layout, shift_wire_header, flags, 0);
  SHIFT_FIXED(layout, shift_wire_header, length, sizeof(shift_wire_header) + measured.size());
  SHIFT_FIXED(layout, shift_wire_header, sequence, kSequence);
  body(layout, message);
  s.message = message;
  s.name = wire::message_name(s.message);
  EXPECT_TRUE(wire::encode(s.message, s.frame, kSequence)) << s.name;
  s.fields = layout.fields();
  s.wrong = layout.wrong();
  return s;
}

template <size_t... Index>
std::vector<Sample> samples_of(std::index_sequence<Index...> /*all*/) {
  return {sample<Index>()...};
}

std::vector<Sample> samples() {
  return samples_of(std::make_index_sequence<std::variant_size_v<wire::Message>>());
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(HeaderLayout, EveryTypeHasItsNumber) {
  EXPECT_EQ(size_t{SHIFT_WIRE_TYPE_MAX}, std::variant_size_v<wire::Message>);
  for (const Sample& s : samples())
    EXPECT_EQ(static_cast<size_t>(s.type), s.message.index() + 1) << s.name;
  EXPECT_EQ(plain_size(SHIFT_WIRE_TYPE_MAX + 1), 0u);
}

TEST(HeaderLayout, EachByteOfEachMessageIsWhereTheHeaderSays) {
  for (const Sample& s : samples()) {
    EXPECT_EQ(joined(s.wrong), "") << s.name;
    EXPECT_EQ(joined(judge(s.frame, s.fields)), "") << s.name;
  }
}

TEST(HeaderLayout, IsTheSameInC) {
  const auto all = samples();
  for (const Sample& s : all) EXPECT_EQ(plain_size(s.type), s.head) << s.name;
  const Sample& progress = all.at(SHIFT_WIRE_PROGRESS - 1);
  EXPECT_EQ(plain_progress_epoch(progress.frame.data()),
            std::get<wire::Progress>(progress.message).epoch);
}

// ---- what the comparison notices

TEST(HeaderLayout, NoticesFieldsThatChangedPlaces) {
  for (const Sample& s : samples()) {
    for (size_t i = 0; i + 1 < s.fields.size(); i++) {
      auto fields = s.fields;
      Field &first = fields[i], &second = fields[i + 1];
      if (first.bytes == second.bytes) continue;  // `found` of two keys
      second.at = first.at;
      first.at += second.bytes.size();
      EXPECT_FALSE(judge(s.frame, fields).empty()) << s.name << ": " << first.name;
    }
  }
}

TEST(HeaderLayout, NoticesAFieldThatMovedGrewShrankOrIsMissing) {
  for (const Sample& s : samples()) {
    for (size_t i = 0; i < s.fields.size(); i++) {
      const auto changed = [&](auto change) {
        auto fields = s.fields;
        change(fields);
        return judge(s.frame, fields);
      };
      const std::string& name = s.fields[i].name;
      EXPECT_FALSE(changed([i](auto& f) { f[i].at++; }).empty()) << name;
      EXPECT_FALSE(changed([i](auto& f) { f[i].at--; }).empty()) << name;
      EXPECT_FALSE(changed([i](auto& f) { f[i].bytes.push_back(0); }).empty()) << name;
      EXPECT_FALSE(changed([i](auto& f) { f[i].bytes.pop_back(); }).empty()) << name;
      EXPECT_FALSE(changed([i](auto& f) { f.erase(f.begin() + static_cast<long>(i)); }).empty())
          << name;
      EXPECT_FALSE(changed([i](auto& f) { f[i].bytes[0] ^= 1; }).empty()) << name;
    }
  }
}

TEST(HeaderLayout, NoticesAFieldOfAnotherSize) {
  Layout layout(1);
  uint32_t value = 0;
  layout.begin(8);
  layout.field("good", 0, 4, value);
  EXPECT_TRUE(layout.wrong().empty());
  layout.field("bad", 4, 2, value);
  EXPECT_FALSE(layout.wrong().empty());
}

}  // namespace
}  // namespace shift::header
