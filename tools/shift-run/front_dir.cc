// Finds the front library and tells it from a stock one.
#include "front_dir.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

namespace shift::run {

namespace fs = std::filesystem;

namespace {

// A message that the front contains and no stock library does.
constexpr std::string_view kMark = "libibverbs (SHIFT front): ";

}  // namespace

bool is_front(const fs::path& library) {
  std::error_code error;
  std::string bytes(fs::is_regular_file(library, error) ? fs::file_size(library, error) : 0, '\0');
  if (error || !std::ifstream(library, std::ios::binary)
                    .read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    return false;
  }
  return memmem(bytes.data(), bytes.size(), kMark.data(), kMark.size()) != nullptr;
}

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

std::vector<std::string> fronts_missing(const fs::path& dir) {
  constexpr struct {
    const char* name;
    const char* stock;  // empty: not installed on the machine that built this program
    const char* loss;
  } kFurther[] = {
      {"librdmacm.so.1", SHIFT_STOCK_LIBRDMACM,
       "programs that connect by rdma_cm are told of faults that are masked, and may end"},
      {"libmlx5.so.1", SHIFT_STOCK_LIBMLX5,
       "programs that use mlx5 direct verbs may fail, and what they make so is not protected"},
  };
  std::vector<std::string> lines;
  std::error_code ignored;
  for (const auto& one : kFurther) {
    if (fs::exists(dir / one.name, ignored) || !fs::exists(one.stock, ignored)) continue;
    lines.push_back(std::string("no ") + one.name + " in " + dir.string() + ": " + one.loss);
  }
  return lines;
}

}  // namespace shift::run
