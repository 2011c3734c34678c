// What a thread and its partner in the other process do with one set of objects. Both draw this
// plan from one seed; each draws by itself what only it can see.
#pragma once

#include <cstdint>
#include <random>

namespace life {

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  // Returns a number in [0, limit).
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(engine_() % limit); }
  bool chance(uint32_t percent) { return below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

enum class End : uint8_t { kBoth, kServerEarly, kClientEarly };

struct Plan {
  Plan(uint64_t seed, uint32_t thread, uint32_t number)
      : key(seed * 0x9e3779b97f4a7c15u + (uint64_t{thread} << 32) + number), dice(key) {
    qps = 1 + dice.below(3);
    messages = 1 + dice.below(30);
    size = dice.chance(30) ? dice.below(20000) + 1 : dice.below(200) + 1;
    is_immediate = dice.chance(50);
    const uint32_t early = dice.below(10);
    end = early == 0 ? End::kServerEarly : early == 1 ? End::kClientEarly : End::kBoth;
    turns = dice.chance(15) ? 2 + dice.below(3) : 1;
    is_shut = dice.chance(30);
    // Some sets live long enough to be protected and to change their path.
    lasts_ms = dice.chance(40) ? 300 + dice.below(1500) : 0;
  }

  const uint64_t key;
  Dice dice;
  uint32_t qps, messages, size;
  bool is_immediate;  // messages are WRITEs with immediate data, else SENDs
  End end;            // whether one end destroys everything in the middle of the traffic
  uint32_t lasts_ms;  // the sends of a queue pair are spread over this time
  bool is_shut;       // the QPs go to ERR at the end, which flushes everything
  uint32_t turns;     // before each but the first the QPs are reset and connected again
};

}  // namespace life
