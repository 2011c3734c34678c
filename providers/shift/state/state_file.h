// A process's state file (layout.h), as its process writes it. Not thread-safe.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "state/layout.h"
#include "util/unique_fd.h"

namespace shift::state {

class StateFile {
 public:
  StateFile() = default;
  // Leaves the file: it tells of a process that has not ended in order.
  ~StateFile() = default;

  // Makes a new file in the user's folder, and locks it for the life of the process. False, with
  // the reason in `problem`, if that cannot be done.
  bool open(const std::string& base, std::string& problem);

  // Writes a record at this place. Returns 0 or errno. A file that somebody has removed meanwhile
  // is not made again.
  template <typename Record>
  int write(size_t place, Record& record) noexcept {
    seal(record);
    char places[Record::kPlaces * kPlaceSize] = {};
    std::memcpy(places, &record, sizeof record);
    return write(place, places, sizeof places);
  }
  // Writes records that belong at adjacent places, from this one on, with one call.
  template <typename Record>
  int write_row(size_t place, std::span<Record> records) {
    constexpr size_t kSize = Record::kPlaces * kPlaceSize;
    std::vector<char> places(records.size() * kSize);
    for (size_t i = 0; i < records.size(); i++) {
      seal(records[i]);
      std::memcpy(&places[i * kSize], &records[i], sizeof records[i]);
    }
    return write(place, places.data(), places.size());
  }
  // Marks the place as free.
  int clear(size_t place) noexcept;

  // The file's path without its end (kStateEnd), for what lies beside it.
  const std::string& stem() const { return stem_; }
  bool is_open() const { return static_cast<bool>(file_); }

  // The process ends in order: adds the counts to the user's totals, and removes the file.
  void end(const Counters& counters) noexcept;

 private:
  int write(size_t place, const void* bytes, size_t size) noexcept;
  bool is_ours() const noexcept;

  dev_t device_ = 0;
  ino_t number_ = 0;
  std::string stem_;
  std::string base_;
  UniqueFd file_;
};

// Adds the files of ended processes to the user's totals and removes them, except for the newest
// ones, which tell how their processes ended.
void ended_fold(const std::string& base, uid_t uid) noexcept;
inline constexpr size_t kEndedKept = 16;

}  // namespace shift::state
