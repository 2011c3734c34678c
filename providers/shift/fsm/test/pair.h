// A model of two ends, the leader and the follower, joined by a channel. What each has sent may
// arrive at any time, in any order, and again. No message is lost for good, because the coordinator
// repeats it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "fsm/test/table.h"

namespace shift::fsm {

enum Message : uint8_t {
  kSwitch,
  kProgress,
  kRefuse,
  kRefuseGone,
  kClose,
  kDrainAsk,
  kDrainDone,
  kDrainCancel,
  kMessages
};
inline constexpr const char* kMessageNames[] = {
    "switch", "progress", "refuse", "gone", "close", "drain-ask", "drain-done", "drain-cancel"};
inline constexpr size_t kEpochs = 8;

// All fields are bytes, so that states can be compared and hashed as bytes.
struct Side {
  State state = State::kActive;
  uint8_t epoch = 0;
  uint8_t fencing = 0;       // the fence has not answered yet
  uint8_t committed_in = 1;  // one bit per epoch: receives have stood on that epoch's target
  uint8_t own_drained = 0, peer_drained = 0;
  uint8_t drained_in = 0;  // the epoch of the drain that is under way
  uint8_t keys_ready = 0;  // all keys of this epoch's replay are known
  // One bit per epoch: the messages that this side has sent, and those of them that have not
  // arrived since they were last sent.
  std::array<uint8_t, kMessages> sent{}, in_flight{};
};
// How many more things of each kind may happen.
struct Budget {
  uint8_t faults = 0;  // faults of paths, unusable targets, lost channels
  uint8_t drains = 0;
  uint8_t ends = 0;  // deadlines, refusals, the application's errors and closing
};
struct Pair {
  std::array<Side, 2> side;  // the leader first
  Budget budget;

  bool operator==(const Pair& other) const { return std::memcmp(this, &other, sizeof *this) == 0; }
};
static_assert(std::has_unique_object_representations_v<Pair>);

// Finds every state that the pair can get into, and how.
class Exploration {
 public:
  explicit Exploration(Budget budget, State follower = State::kActive);

  const std::vector<Pair>& pairs() const { return pairs_; }
  const std::string& broken() const { return broken_; }
  std::string path_to(size_t index) const;
  // All messages have arrived, and the ends themselves will do nothing more: only the outside world
  // or a deadline could change anything.
  static bool is_quiet(const Pair& pair);

 private:
  struct Hash {
    size_t operator()(const Pair& pair) const;
  };
  struct Step {
    size_t before;
    uint8_t side;
    bool is_message;
    uint8_t what, epoch;
  };

  void grow(size_t index);
  void add(const Pair& next, Step how);
  void feed(Pair& pair, size_t i, Event event, int answered, bool commits);
  bool run(Pair& pair, size_t i, Action action, int answered, bool commits);
  void arrive(Pair& pair, size_t to, Message message, int epoch, bool commits);

  std::vector<Pair> pairs_;
  std::vector<Step> steps_;
  std::unordered_map<Pair, size_t, Hash> index_;
  std::string broken_;
};

}  // namespace shift::fsm
