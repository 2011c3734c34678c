// Makes and checks files of job keys for the command line.
#pragma once

#include <string>

namespace shift::run {

// Each of these returns an empty string, or in one line why it did not work.

// Whether the layer would take the keys of the file.
std::string key_file_check(const std::string& path);

// Adds the id of each key of the file to `ids`, one line each, in their order.
std::string key_file_ids(const std::string& path, std::string& ids);

// Makes the file, with one new random key, for its owner alone. What is there already is not
// touched.
std::string key_file_make(const std::string& path);

}  // namespace shift::run
