#include "control/locate.h"

#include <algorithm>

#include "util/planted.h"

namespace shift::control {
namespace {

// One bit for each value that a trial may have in a row.
constexpr uint8_t bit(Trial trial) {
  return static_cast<uint8_t>(1u << static_cast<unsigned>(trial));
}
constexpr uint8_t kOk = bit(Trial::kPassed), kFails = bit(Trial::kFailed), kNo = bit(Trial::kNone);

struct Row {
  Place place;
  std::array<uint8_t, kWays> may;  // P0 to P4
};

// A NIC is at fault if it reaches neither of two NICs that reach each other, and is not if it
// reaches any. Where P0 passes, the fault is over, and says nothing any more.
//
// Local rests on probes of this end alone: i reaches neither k nor its own neighbour, and these two
// reach each other. So the peer's word (P2) is not needed for it, though it may speak against it.
constexpr Row kRows[] = {
    {Place::kLocal, {kFails, kFails, kOk | kNo, kOk, kFails}},
    {Place::kRemote, {kFails, kOk, kFails, kFails, kOk}},
    {Place::kPath, {kFails, kOk, kOk, kOk, kOk}},
};

bool fits(const Row& row, const Trials& trials) {
  for (size_t way = 0; way < kWays; way++) {
    uint8_t may = row.may[way];
    if (SHIFT_PLANT(no_baseline_needed)) may |= kNo;
    if (SHIFT_PLANT(healed_fault_placed) && way == 0) may |= kOk;
    if ((may & bit(trials.of[way])) == 0) return false;
  }
  return true;
}

Place shown(Place place) {
  if (!SHIFT_PLANT(rows_swapped)) return place;
  return place == Place::kLocal ? Place::kRemote : place == Place::kRemote ? Place::kLocal : place;
}

}  // namespace

Place place_of(const Trials& trials) {
  for (const Row& row : kRows)
    if (fits(row, trials)) return shown(row.place);
  return Place::kUnknown;
}

bool is_word_wanted(const Trials& trials) {
  if (trials[Way::kPeers] != Trial::kNone || place_of(trials) != Place::kUnknown) return false;
  Trials with = trials;
  return std::ranges::any_of(std::array{Trial::kPassed, Trial::kFailed}, [&with](Trial word) {
    with[Way::kPeers] = word;
    return place_of(with) != Place::kUnknown;
  });
}

std::string trials_text(const Trials& trials, Places own, Places peer) {
  const auto a = [](int nic) { return "A" + std::to_string(nic); };
  const auto b = [](int nic) { return "B" + std::to_string(nic); };
  const std::array<std::string, kWays> names{
      a(own.nic) + "-" + b(peer.nic), a(own.nic) + "-" + a(own.neighbour),
      b(peer.nic) + "-" + b(peer.neighbour), a(own.neighbour) + "-" + b(peer.nic),
      a(own.nic) + "-" + b(peer.neighbour)};
  std::string text;
  for (size_t way = 0; way < kWays; way++) {
    if (trials.of[way] == Trial::kNone) continue;
    text += (text.empty() ? "" : ", ") + names[way] +
            (trials.of[way] == Trial::kPassed ? " passes" : " fails");
  }
  return text.empty() ? "no probe has told anything" : text;
}

}  // namespace shift::control
