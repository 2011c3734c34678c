// Two machines joined by the control channel: every interleaving of faults, answers and messages.
// Messages are never lost, but travel on several connections at once: each may overtake any other
// and may arrive again at any later time.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>

#include "fsm/test/table.h"

namespace shift::fsm {
namespace {

enum Message : uint8_t { kSwitch, kProgress, kRefuseOld, kRefuseNew, kClose, kMessages };
constexpr const char* kMessageNames[] = {"switch", "progress", "refuse-0", "refuse-1", "close"};

struct Side {
  State state = State::kArmed;
  uint32_t epoch = 0;
  bool fencing = false;  // the fence has not answered yet
  bool fenced = false;
  bool receives_moved = false;
  bool keys_asked = false;
  bool keys_ready = false;
  // What this side has sent, and of that what has not arrived since it was last sent.
  std::array<bool, kMessages> sent{}, in_flight{};

  auto operator<=>(const Side&) const = default;
};
using World = std::array<Side, 2>;

void send(Side& side, Message message) {
  side.sent[message] = side.in_flight[message] = true;
}

void run(Side& side, const Cell& cell, uint32_t answered_epoch) {
  side.state = cell.next;
  for (Action action : actions_of(cell)) {
    switch (action) {
      case Action::kEnterEpoch:
        side.epoch++;
        break;
      case Action::kStartFence:
        side.fencing = true;
        break;
      case Action::kSendSwitch:
        send(side, kSwitch);
        break;
      case Action::kSendProgress:
        send(side, kProgress);
        break;
      case Action::kSendRefuse:
        // A refusal is about the epoch of what it answers: the peer may be one ahead of us.
        send(side, answered_epoch == 0 ? kRefuseOld : kRefuseNew);
        break;
      case Action::kSendClose:
        send(side, kClose);
        break;
      case Action::kRepostReceives:
        side.receives_moved = true;
        break;
      case Action::kRequestKeys:
        side.keys_asked = true;
        break;
      default:
        break;
    }
  }
}

bool is_switching(const Side& side) {
  return side.state == State::kFencing || side.state == State::kFencingPeerReady ||
         side.state == State::kExchanging || side.state == State::kResuming;
}

bool can_happen(const Side& side, Event event) {
  switch (event) {
    case Event::kFenceDone:
    case Event::kFenceFailed:
      return side.fencing &&
             (side.state == State::kFencing || side.state == State::kFencingPeerReady);
    case Event::kKeysReady:
      return side.keys_asked && !side.keys_ready && side.state == State::kResuming;
    case Event::kReplayRefused:
      return side.receives_moved;
    case Event::kDeadline:
      return is_switching(side);
    default:
      return true;
  }
}

void happen(Side& side, Event event) {
  if (event == Event::kFenceDone || event == Event::kFenceFailed) side.fencing = false;
  if (event == Event::kFenceDone) side.fenced = true;
  if (event == Event::kKeysReady) side.keys_ready = true;
  run(side, step(side.state, event), side.epoch);
}

// What the shell makes of a message.
void arrive(Side& to, Message message) {
  auto by_epoch = [&](uint32_t epoch, Event next, Event current) {
    switch (compare_epoch(epoch, to.epoch)) {
      case EpochIs::kNext:
        return next;
      case EpochIs::kCurrent:
        return current;
      default:
        return Event::kPeerMessageStale;
    }
  };
  switch (message) {
    case kSwitch:
      return run(to, step(to.state, by_epoch(1, Event::kPeerSwitchNext, Event::kPeerSwitchCurrent)),
                 1);
    case kProgress:
      return run(to,
                 step(to.state, by_epoch(1, Event::kPeerProgressNext, Event::kPeerProgressCurrent)),
                 1);
    case kRefuseOld:
    case kRefuseNew: {
      const bool current = to.epoch == (message == kRefuseOld ? 0u : 1u);
      return run(to, step(to.state, current ? Event::kPeerRefused : Event::kPeerMessageStale),
                 to.epoch);
    }
    default:
      return run(to, step(to.state, Event::kPeerClosed), to.epoch);
  }
}

struct Reached {
  World before;
  std::string how;
};
using Seen = std::map<World, Reached>;

Seen explore(const World& first, const std::set<Event>& events) {
  Seen seen{{first, {first, ""}}};
  std::deque<World> queue{first};
  auto add = [&](const World& from, const World& to, const std::string& how) {
    if (seen.emplace(to, Reached{from, how}).second) queue.push_back(to);
  };
  while (!queue.empty()) {
    const World world = queue.front();
    queue.pop_front();
    for (size_t i = 0; i < 2; i++) {
      const std::string name = i == 0 ? "a:" : "b:";
      for (Event event : events) {
        if (!can_happen(world[i], event)) continue;
        World next = world;
        happen(next[i], event);
        add(world, next, name + to_string(event));
      }
      for (uint8_t m = 0; m < kMessages; m++) {
        if (!world[1 - i].sent[m]) continue;
        World next = world;
        next[1 - i].in_flight[m] = false;
        arrive(next[i], static_cast<Message>(m));
        add(world, next, name + "<-" + kMessageNames[m]);
      }
    }
  }
  return seen;
}

std::string path_to(const Seen& seen, World world) {
  std::string path;
  for (int i = 0; i < 60; i++) {
    const Reached& reached = seen.at(world);
    if (reached.how.empty()) break;
    path = reached.how + " " + path;
    world = reached.before;
  }
  return path;
}

// Everything sent has arrived and nobody owes an answer to itself; only timers may be left.
bool is_quiet(const World& world) {
  for (const Side& side : world) {
    for (bool message : side.in_flight) {
      if (message) return false;
    }
    if (can_happen(side, Event::kFenceDone) || can_happen(side, Event::kKeysReady)) return false;
  }
  return true;
}

std::set<Event> every_event() {
  std::set<Event> events;
  for (Event event : all_events()) {
    const bool from_peer = event >= Event::kPeerSwitchNext && event <= Event::kPeerClosed;
    if (!from_peer && event != Event::kBound && event != Event::kChannelLost) events.insert(event);
  }
  return events;
}

// Both orders of a pair of states.
bool is_pair(const World& world, State one, State other) {
  return (world[0].state == one && world[1].state == other) ||
         (world[0].state == other && world[1].state == one);
}

TEST(Peers, NoRunEndsWithTheEndsInDisagreement) {
  const Seen seen = explore({}, every_event());
  EXPECT_GT(seen.size(), 1000u);
  for (const auto& [world, reached] : seen) {
    for (size_t i = 0; i < 2; i++) {
      // C3: whoever posts on the backup knows that the peer's old path is shut, and so is its own,
      // and that the peer's receives are there.
      if (world[i].state == State::kOnBackup) {
        ASSERT_TRUE(world[i].fenced && world[1 - i].fenced && world[1 - i].receives_moved)
            << path_to(seen, world);
      }
    }
    if (!is_quiet(world)) continue;
    for (State other : {State::kFailed, State::kArmed, State::kUnbound}) {
      ASSERT_FALSE(is_pair(world, State::kOnBackup, other))
          << to_string(other) << " beside on-backup after " << path_to(seen, world);
    }
    ASSERT_FALSE(is_pair(world, State::kArmed, State::kFailed)) << path_to(seen, world);
  }
}

// C6: the deadline is the last resort, for a peer that says nothing. One that has given up says so.
TEST(Peers, NobodyWaitsForAPeerThatGaveUp) {
  auto events = every_event();
  events.erase(Event::kDeadline);
  for (State other : {State::kArmed, State::kUnbound}) {
    World first{};
    first[1].state = other;
    const Seen seen = explore(first, events);
    for (const auto& [world, reached] : seen) {
      if (!is_quiet(world)) continue;
      for (const Side& side : world) {
        ASSERT_FALSE(is_switching(side))
            << to_string(world[0].state) << " / " << to_string(world[1].state) << " after "
            << path_to(seen, world);
      }
    }
  }
}

// C7: faults of the default path alone, at one end or both and at any moment, always end with both
// ends on the backup.
TEST(Peers, CrossingDetectionsConverge) {
  const Seen seen = explore({}, {Event::kLocalFault, Event::kFenceDone, Event::kKeysReady});
  size_t moved = 0;
  for (const auto& [world, reached] : seen) {
    if (!is_quiet(world)) continue;
    if (world == World{}) continue;  // no fault came
    moved++;
    ASSERT_TRUE(is_pair(world, State::kOnBackup, State::kOnBackup)) << path_to(seen, world);
    ASSERT_EQ(world[0].epoch, world[1].epoch);
  }
  EXPECT_GT(moved, 0u);
}

}  // namespace
}  // namespace shift::fsm
