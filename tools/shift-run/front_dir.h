// Where the front library lies.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shift::run {

// The folders a front may lie in, seen from the program's own: the build tree, an installation
// moved as a whole, and the installation as configured.
std::vector<std::filesystem::path> front_candidates(const std::filesystem::path& program);

// The first of `candidates` that holds our libibverbs.so.1. A stock one does not count: on some
// systems it lies in the ../lib of an installed program.
std::optional<std::filesystem::path> front_find(
    const std::vector<std::filesystem::path>& candidates);

// One line for each front that `dir` lacks though the machine has the stock library: what is not
// protected then.
std::vector<std::string> fronts_missing(const std::filesystem::path& dir);

}  // namespace shift::run
