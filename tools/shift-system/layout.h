// Where the tool finds and puts things. All paths are as programs see them; below --root they lie
// elsewhere.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace shift::system {

// Fronts lie here, and nothing else does.
inline constexpr std::string_view kFrontDir = SHIFT_FRONT_DIR;
inline constexpr std::string_view kConfDir = "/etc/ld.so.conf.d";
// The linker reads the files of that folder in the order of their names, and takes what it finds
// first, so the name has to sort before the distribution's own files.
inline constexpr std::string_view kConf = "/etc/ld.so.conf.d/00-shift.conf";

struct Front {
  const char* name;
  const char* stock;  // empty: not there when this program was built, so there is no such front
};
inline constexpr Front kFronts[] = {{"libibverbs.so.1", SHIFT_STOCK_LIBIBVERBS},
                                    {"librdmacm.so.1", SHIFT_STOCK_LIBRDMACM},
                                    {"libmlx5.so.1", SHIFT_STOCK_LIBMLX5}};

struct Layout {
  std::string root;  // empty: the running system

  std::filesystem::path at(std::string_view path) const { return root + std::string(path); }
};

}  // namespace shift::system
