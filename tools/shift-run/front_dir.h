// Finds the folder of the front library.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shift::run {

// Whether the file is the project's libibverbs.so.1, of whichever build.
bool is_front(const std::filesystem::path& library);

// The folders in which a front may lie, relative to the program's own folder: in the build tree, in
// an installation moved as a whole, and in the installation as configured.
std::vector<std::filesystem::path> front_candidates(const std::filesystem::path& program);

// The first of `candidates` that holds the project's libibverbs.so.1. A stock one does not count:
// on some systems it lies in the ../lib of an installed program.
std::optional<std::filesystem::path> front_find(
    const std::vector<std::filesystem::path>& candidates);

// One line for each front that `dir` lacks although the machine has the stock library; the line
// says what is then unprotected.
std::vector<std::string> fronts_missing(const std::filesystem::path& dir);

}  // namespace shift::run
