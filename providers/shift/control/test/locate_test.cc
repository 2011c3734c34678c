// Tests where a fault is said to be, for each result that the probes may have.
#include "control/locate.h"

#include <gtest/gtest.h>

#include <bitset>
#include <vector>

namespace shift::control {
namespace {

constexpr Trial kValues[] = {Trial::kNone, Trial::kPassed, Trial::kFailed};

template <typename Then>
void for_each_result(const Then& then) {
  for (const Trial p0 : kValues)
    for (const Trial p1 : kValues)
      for (const Trial p2 : kValues)
        for (const Trial p3 : kValues)
          for (const Trial p4 : kValues) then(Trials{{p0, p1, p2, p3, p4}});
}

// The NICs i and j here, k and l at the peer, and the ways between them, in the order of P0 to P4.
enum NicNumber { kI, kJ, kK, kL, kNics };
constexpr NicNumber kEnds[kWays][2] = {{kI, kK}, {kI, kJ}, {kK, kL}, {kJ, kK}, {kI, kL}};

struct Broken {
  std::bitset<kNics> dead;
  std::bitset<kWays> cut;

  bool passes(size_t way) const {
    return !cut[way] && !dead[kEnds[way][0]] && !dead[kEnds[way][1]];
  }
  // What is seen when the ways in `known` have worked in calm.
  Trials seen(std::bitset<kWays> known) const {
    Trials trials;
    for (size_t way = 0; way < kWays; way++)
      if (known[way]) trials.of[way] = passes(way) ? Trial::kPassed : Trial::kFailed;
    return trials;
  }
  // Whether the NIC, its cable or its port is at fault. A NIC of which each way is cut cannot be
  // told from one that is dead.
  bool is_broken(NicNumber nic) const {
    if (dead[nic]) return true;
    for (size_t way = 0; way < kWays; way++)
      if ((kEnds[way][0] == nic || kEnds[way][1] == nic) && !cut[way]) return false;
    return true;
  }
  bool is_right(Place place) const {
    switch (place) {
      case Place::kLocal:
        return is_broken(kI);
      case Place::kRemote:
        return is_broken(kK);
      case Place::kPath:
        return !is_broken(kI) && !is_broken(kK) && cut[0];
      case Place::kUnknown:
        break;
    }
    return true;
  }
};

Broken with_dead(NicNumber nic) {
  Broken world;
  world.dead[nic] = true;
  return world;
}

TEST(Locate, ASingleFaultIsFoundWhenAllWaysAreKnown) {
  const auto all = std::bitset<kWays>().set();
  Broken cut;
  cut.cut[0] = true;
  EXPECT_EQ(place_of(with_dead(kI).seen(all)), Place::kLocal);
  EXPECT_EQ(place_of(with_dead(kK).seen(all)), Place::kRemote);
  EXPECT_EQ(place_of(cut.seen(all)), Place::kPath);
  EXPECT_EQ(place_of(Broken().seen(all)), Place::kUnknown);  // it is over
}

// Whatever one or two things are broken, and whichever ways are known, no place is named that is
// not at fault.
TEST(Locate, NoPlaceIsNamedWrongly) {
  int named = 0;
  for (unsigned dead = 0; dead < 1u << kNics; dead++) {
    for (unsigned cut = 0; cut < 1u << kWays; cut++) {
      for (unsigned known = 0; known < 1u << kWays; known++) {
        const Broken world{dead, cut};
        if (world.dead.count() + world.cut.count() > 2) continue;
        // Two cut ways of a working NIC look like the NIC's fault: no probe can tell.
        if (world.cut.count() == 2 && world.dead.none()) continue;
        const Place place = place_of(world.seen(known));
        named += place != Place::kUnknown;
        EXPECT_TRUE(world.is_right(place)) << to_string(place) << " dead " << world.dead << " cut "
                                           << world.cut << " known " << std::bitset<kWays>(known);
      }
    }
  }
  EXPECT_GT(named, 0);
}

TEST(Locate, AFaultThatIsOverSaysNothing) {
  for_each_result([](const Trials& trials) {
    if (trials[Way::kDirect] == Trial::kPassed) {
      EXPECT_EQ(place_of(trials), Place::kUnknown);
    }
  });
}

// C11: without the own probes that show it, no word of the peer makes this end leave its NIC.
TEST(Locate, ThePeersWordNeverMakesAFaultLocal) {
  for_each_result([](Trials trials) {
    if (place_of(trials) == Place::kLocal) {
      EXPECT_EQ(trials[Way::kOwn], Trial::kFailed);
      EXPECT_EQ(trials[Way::kInward], Trial::kPassed);
      trials[Way::kPeers] = Trial::kNone;
      EXPECT_EQ(place_of(trials), Place::kLocal);
    }
  });
}

TEST(Locate, WaysThatAreNotKnownLeaveItUnknown) {
  for_each_result([](const Trials& trials) {
    for (const Way way : {Way::kDirect, Way::kOwn, Way::kInward, Way::kOutward})
      if (trials[way] == Trial::kNone) {
        EXPECT_EQ(place_of(trials), Place::kUnknown);
      }
  });
}

TEST(Locate, ThePeersWordIsWantedWhereItDecides) {
  int wanted = 0;
  for_each_result([&wanted](Trials trials) {
    const Place before = place_of(trials);
    const bool is_wanted = is_word_wanted(trials);
    if (trials[Way::kPeers] != Trial::kNone) {
      EXPECT_FALSE(is_wanted);
      return;
    }
    bool decides = false;
    for (const Trial word : {Trial::kPassed, Trial::kFailed}) {
      trials[Way::kPeers] = word;
      decides |= before == Place::kUnknown && place_of(trials) != Place::kUnknown;
    }
    EXPECT_EQ(is_wanted, decides);
    wanted += is_wanted;
  });
  EXPECT_GT(wanted, 0);
}

TEST(Locate, PeopleReadWhichWaysFail) {
  Trials trials;
  EXPECT_EQ(trials_text(trials, {0, 1}, {2, 3}), "no probe has told anything");
  trials.of = {Trial::kFailed, Trial::kFailed, Trial::kPassed, Trial::kPassed, Trial::kFailed};
  EXPECT_EQ(trials_text(trials, {0, 1}, {2, 3}),
            "A0-B2 fails, A0-A1 fails, B2-B3 passes, A1-B2 passes, A0-B3 fails");
}

}  // namespace
}  // namespace shift::control
