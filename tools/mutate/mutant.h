// Included into each source of a mutated build before all else: the switch of each mutant.
//
// SHIFT_MUTANT is the number of the mutant that is on; without it, none is. SHIFT_MUTANT_HITS names
// a file to which the numbers of all mutants are appended that were reached.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace shift_mutants {

inline constexpr int kMost = 4096;

class Hits {
 public:
  // Never destroyed, because threads may go on while the program ends.
  static Hits& get() {
    static Hits* const hits = new Hits;
    return *hits;
  }
  int on() const { return on_; }
  void reached(int number) { reached_[number].store(true, std::memory_order_relaxed); }

 private:
  Hits() {
    if (const char* number = std::getenv("SHIFT_MUTANT")) on_ = std::atoi(number);
    if (std::getenv("SHIFT_MUTANT_HITS") != nullptr) std::atexit([] { get().write(); });
  }
  void write() const {
    std::FILE* file = std::fopen(std::getenv("SHIFT_MUTANT_HITS"), "a");
    if (file == nullptr) return;
    for (int i = 0; i < kMost; i++) {
      if (reached_[i].load(std::memory_order_relaxed)) std::fprintf(file, "%d\n", i);
    }
    std::fclose(file);
  }

  int on_ = 0;
  std::atomic<bool> reached_[kMost]{};
};

}  // namespace shift_mutants

constexpr bool shift_mutant(int number) {
  if (std::is_constant_evaluated()) return false;
  shift_mutants::Hits& hits = shift_mutants::Hits::get();
  hits.reached(number);
  return hits.on() == number;
}
