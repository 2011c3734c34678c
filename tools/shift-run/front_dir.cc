// Finds the front library and tells it from a stock one.
#include "front_dir.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>

namespace shift::run {

namespace fs = std::filesystem;

namespace {

// A message of the front's; no stock library has it.
constexpr std::string_view kMark = "libibverbs (SHIFT front): ";

bool is_front(const fs::path& library) {
  std::ifstream file(library, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return bytes.find(kMark) != std::string::npos;
}

}  // namespace

std::vector<fs::path> front_candidates(const fs::path& program) {
  const fs::path prefix = program.parent_path().parent_path();
  const fs::path configured = SHIFT_FRONT_DIR;
  return {prefix / "lib", prefix / "lib" / configured.parent_path().filename() / "shift",
          prefix / "lib" / "shift", prefix / "lib64" / "shift", configured};
}

std::optional<fs::path> front_find(const std::vector<fs::path>& candidates) {
  const auto found = std::ranges::find_if(
      candidates, [](const fs::path& dir) { return is_front(dir / "libibverbs.so.1"); });
  if (found == candidates.end()) return std::nullopt;
  return *found;
}

}  // namespace shift::run
