#include "../advice.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace shift::ctl {
namespace {

TEST(Advice, every_row_can_be_reached_and_has_all_its_texts) {
  for (const Advice& advice : all_advice()) {
    EXPECT_EQ(&advice_for(advice.reason), &advice) << advice.reason;
    EXPECT_TRUE(advice.missing.ends_with('.')) << advice.reason;
    EXPECT_TRUE(advice.to_do.ends_with('.')) << advice.reason;
    EXPECT_TRUE(std::regex_match(std::string(advice.label), std::regex("[a-z0-9-]{2,24}")))
        << advice.label;
  }
  EXPECT_EQ(advice_for("something new").label, "other");
  EXPECT_EQ(advice_for("").label, "other");
}

std::string text_of(const std::string& file) {
  std::ifstream in(SHIFT_SOURCE_DIR "/" + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A reason that the layer gives and the table does not know would only ever be "other".
TEST(Advice, the_layers_reasons_are_known) {
  std::set<std::string> reasons;
  for (const char* file :
       {"providers/shift/net/find.cc", "providers/shift/control/spare_watch.cc"}) {
    const std::string text = text_of(file);
    const std::regex returned(
        "return \"([a-z][^\"]+)\"|: \"(it has [^\"]+)\"|\\? \"(the peer has[^\"]+)\"");
    for (std::sregex_iterator it(text.begin(), text.end(), returned), end; it != end; ++it)
      for (int i = 1; i <= 3; i++)
        if ((*it)[i].matched) reasons.insert((*it)[i].str());
  }
  EXPECT_GE(reasons.size(), 12u);
  for (const auto& reason : reasons)
    if (reason != "found" && reason != "stopped") {
      EXPECT_NE(advice_for(reason).label, "other") << reason;
    }
}

}  // namespace
}  // namespace shift::ctl
