// Explores all states of the model of two ends: it plays what the coordinator does with messages
// and actions.
#include "fsm/test/pair.h"

#include <string_view>

namespace shift::fsm {
namespace {

constexpr size_t kLeader = 0;
constexpr Event kEnds[] = {Event::kFenceFailed, Event::kReplayRefused, Event::kAppError,
                           Event::kAppClosed, Event::kDeadline};

uint8_t bit(int n) {
  return static_cast<uint8_t>(1u << n);
}

void send(Side& side, Message message, int epoch) {
  side.sent[message] |= bit(epoch);
  side.in_flight[message] |= bit(epoch);
}

// Is this an event that the ends themselves bring about sooner or later?
bool is_due(const Pair& pair, size_t i, Event event) {
  const Side& side = pair.side[i];
  switch (event) {
    case Event::kFenceDone:
      return side.fencing && is_fencing(side.state);
    case Event::kKeysReady:
      return side.state == State::kResuming;
    case Event::kPathReady:
      return i == kLeader && side.state == State::kSeeking;
    case Event::kDrained:
      if (side.state == State::kHeld) return !side.own_drained;
      return side.state == State::kDraining && side.peer_drained;
    case Event::kDrainTimeout:
      return is_parked(side.state);
    default:
      return false;
  }
}

constexpr Event kOwn[] = {Event::kFenceDone, Event::kKeysReady, Event::kPathReady, Event::kDrained,
                          Event::kDrainTimeout};

// Is this an event that the outside world may bring about now?
bool can_happen(const Pair& pair, size_t i, Event event) {
  const Side& side = pair.side[i];
  const bool on_path =
      side.state == State::kActive || is_parked(side.state) || is_committed(side.state);
  switch (event) {
    case Event::kPathFault:
      return pair.budget.faults > 0 && on_path;
    case Event::kChannelLost:
      return pair.budget.faults > 0 && is_parked(side.state);
    case Event::kBetterPath:
      return pair.budget.drains > 0 && i == kLeader && side.state == State::kActive &&
             side.epoch > 0;
    case Event::kFenceFailed:
      return pair.budget.ends > 0 && is_due(pair, i, Event::kFenceDone);
    case Event::kReplayRefused:
      return pair.budget.ends > 0 && on_path && side.epoch > 0;
    case Event::kDeadline:
      return pair.budget.ends > 0 && is_leaving(side.state);
    case Event::kAppError:
    case Event::kAppClosed:
      return pair.budget.ends > 0;
    default:
      return false;
  }
}

}  // namespace

size_t Exploration::Hash::operator()(const Pair& pair) const {
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(&pair), sizeof pair});
}

bool Exploration::run(Pair& pair, size_t i, Action action, int answered, bool commits) {
  Side& side = pair.side[i];
  const int about = answered >= 0 ? answered : side.epoch;
  switch (action) {
    case Action::kEnterEpoch:
      side.epoch = static_cast<uint8_t>(about > side.epoch ? about : side.epoch + 1);
      side.keys_ready = 0;
      if (side.epoch >= kEpochs) broken_ = "epochs run away";
      break;
    case Action::kStartFence:
      side.fencing = 1;
      break;
    case Action::kSendSwitch:
      send(side, kSwitch, side.epoch);
      break;
    case Action::kCommit:
      if (!commits) return false;
      side.committed_in |= bit(side.epoch);
      break;
    case Action::kSendProgress:
      send(side, kProgress, side.epoch);
      break;
    case Action::kReplay:
      // C2, C3: an end that posts on the target knows that the peer has shut its old path, and that
      // the peer's receives stand on the target.
      if ((pair.side[1 - i].committed_in & bit(side.epoch)) == 0) {
        broken_ = "replayed before the peer is on the target";
      }
      break;
    case Action::kWatchDrain:
      side.own_drained = side.peer_drained = 0;
      side.drained_in = side.epoch;
      break;
    case Action::kSendDrain:
      send(side, kDrainAsk, side.epoch);
      break;
    case Action::kSendDrained:
      side.own_drained = 1;
      send(side, kDrainDone, side.epoch);
      break;
    case Action::kSendDrainCancel:
      send(side, kDrainCancel, side.epoch);
      break;
    case Action::kSendRefuse:
      send(side, side.state == State::kClosed ? kRefuseGone : kRefuse, about);
      break;
    case Action::kSendClose:
      send(side, kClose, 0);
      break;
    default:
      break;
  }
  return true;
}

void Exploration::feed(Pair& pair, size_t i, Event event, int answered, bool commits) {
  Side& side = pair.side[i];
  const Cell& cell = step(side.state, event);
  if (cell.kind == Kind::kImpossible) broken_ = "a cell called impossible is reached";
  if (event == Event::kFenceDone || event == Event::kFenceFailed) side.fencing = 0;
  side.state = cell.next;
  for (Action action : actions_of(cell)) {
    if (run(pair, i, action, answered, commits)) continue;
    feed(pair, i, Event::kTargetUnusable, answered, commits);
    break;
  }
  if (is_over(side.state)) side.fencing = 0;
}

// Turns a message into an event, as the coordinator does.
void Exploration::arrive(Pair& pair, size_t to, Message message, int epoch, bool commits) {
  Side& side = pair.side[to];
  const EpochIs is = compare_epoch(static_cast<uint32_t>(epoch), static_cast<uint32_t>(side.epoch));
  const bool current = is == EpochIs::kCurrent;
  const auto take = [&](Event event) { feed(pair, to, event, epoch, commits); };
  if (is == EpochIs::kStale && message != kClose) return take(Event::kPeerMessageStale);
  switch (message) {
    case kSwitch:
      return take(current ? Event::kPeerSwitchCurrent : Event::kPeerSwitchNext);
    case kProgress:
      if (to == kLeader) {
        return take(current ? Event::kPeerProgressCurrent : Event::kPeerMessageStale);
      }
      return take(current ? Event::kTargetCurrent : Event::kTargetNext);
    case kRefuse:
    case kRefuseGone:
      if (!current || epoch == 0) return take(Event::kPeerMessageStale);
      return take(message == kRefuse ? Event::kPeerRefused : Event::kPeerClosed);
    case kClose:
      return feed(pair, to, Event::kPeerClosed, -1, commits);
    case kDrainAsk:
      // The leader has called this drain off: the real code knows the late copy by its attempt.
      if (!current || (pair.side[kLeader].sent[kDrainCancel] & bit(epoch)) != 0) return;
      return take(Event::kPeerDrain);
    case kDrainCancel:
      if (current) take(Event::kPeerDrainCancel);
      return;
    case kDrainDone:
      if (current && side.state == State::kDraining) side.peer_drained = 1;
      return;
    default:
      return;
  }
}

void Exploration::add(const Pair& next, Step how) {
  if (index_.emplace(next, pairs_.size()).second) {
    pairs_.push_back(next);
    steps_.push_back(how);
  }
}

void Exploration::grow(size_t index) {
  const Pair pair = pairs_[index];
  const auto take = [&](size_t i, Event event, bool commits, uint8_t Budget::*budget) {
    Pair next = pair;
    if (budget != nullptr) (next.budget.*budget)--;
    feed(next, i, event, -1, commits);
    add(next, {index, static_cast<uint8_t>(i), false, static_cast<uint8_t>(event), 0});
  };
  for (size_t i = 0; i < 2; i++) {
    const State state = pair.side[i].state;
    for (Event event : kOwn) {
      if (!is_due(pair, i, event)) continue;
      take(i, event, true, nullptr);
      if (has(step(state, event), Action::kCommit) && pair.budget.faults > 0) {
        take(i, event, false, &Budget::faults);
      }
    }
    for (Event event : {Event::kPathFault, Event::kChannelLost}) {
      if (can_happen(pair, i, event)) take(i, event, true, &Budget::faults);
    }
    if (can_happen(pair, i, Event::kBetterPath)) {
      take(i, Event::kBetterPath, true, &Budget::drains);
    }
    for (Event event : kEnds) {
      if (can_happen(pair, i, event)) take(i, event, true, &Budget::ends);
    }
    for (uint8_t m = 0; m < kMessages; m++) {
      for (uint8_t epoch = 0; epoch < kEpochs; epoch++) {
        if ((pair.side[1 - i].sent[m] & bit(epoch)) == 0) continue;
        for (bool commits : {true, false}) {
          if (!commits && pair.budget.faults == 0) continue;
          Pair next = pair;
          next.side[1 - i].in_flight[m] &= static_cast<uint8_t>(~bit(epoch));
          if (!commits) next.budget.faults--;
          const uint8_t before = next.side[i].committed_in;
          arrive(next, i, static_cast<Message>(m), epoch, commits);
          // If this message led to no commit, the second way is a repetition of the first.
          if (!commits && next.side[i].committed_in == before && !is_fencing(next.side[i].state)) {
            continue;
          }
          add(next, {index, static_cast<uint8_t>(i), true, m, epoch});
        }
      }
    }
  }
}

Exploration::Exploration(Budget budget, State follower) {
  Pair first;
  first.budget = budget;
  first.side[1].state = follower;
  add(first, {0, 0, false, 0, 0});
  for (size_t i = 0; i < pairs_.size() && broken_.empty(); i++) {
    grow(i);
    if (!broken_.empty()) broken_ += " after: " + path_to(pairs_.size() - 1);
  }
}

std::string Exploration::path_to(size_t index) const {
  std::string path;
  for (; index != 0; index = steps_[index].before) {
    const Step& how = steps_[index];
    std::string name = how.side == kLeader ? "L:" : "F:";
    if (how.is_message) {
      name += std::string("<-") + kMessageNames[how.what] + std::to_string(how.epoch);
    } else {
      name += to_string(static_cast<Event>(how.what));
    }
    path = name + " " + path;
  }
  return path;
}

bool Exploration::is_quiet(const Pair& pair) {
  for (size_t i = 0; i < 2; i++) {
    for (uint8_t message : pair.side[i].in_flight) {
      if (message != 0) return false;
    }
    for (Event event : kOwn) {
      if (is_due(pair, i, event)) return false;
    }
  }
  return true;
}

}  // namespace shift::fsm
