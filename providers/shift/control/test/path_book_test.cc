// Tests which path is tried next, and which ready path is taken.
#include "control/path_book.h"

#include <gtest/gtest.h>

#include <map>

namespace shift::control {
namespace {

using Time = Loop::Clock::time_point;
using Paths = std::vector<PathName>;
using std::chrono::milliseconds;

constexpr PathName kBest{0, 0}, kOne{1, 1}, kTwo{2, 2};

class Book : public ::testing::Test {
 protected:
  void start(int own, int peer, uint64_t spread = 0, bool is_self = false) {
    book_.init(own, is_self, spread);
    book_.peer_members_set(peer, 0xff);
    book_.own_up_set(0xff);
  }
  std::optional<PathName> next(uint64_t serial = 1) {
    again_ = Time::max();
    return book_.next(now_, serial, links_, &again_);
  }
  std::optional<PathName> blocked() { return book_.better_blocked(links_); }
  // Nobody is to try that pair any more.
  void never(PathName path) {
    links_[path].not_before = links_[path].seek_not_before = Time::max();
  }
  // The order of the attempts if each fails at once and is not repeated.
  Paths order() {
    Paths all;
    while (const auto path = next()) {
      all.push_back(*path);
      never(*path);
    }
    links_.clear();
    return all;
  }
  void ready(PathName path, uint32_t generation = 1) { book_.ready_add(path, generation, now_); }

  PathBook book_;
  Ways links_;
  Time now_{std::chrono::seconds(1000)};
  Time again_;
};

TEST_F(Book, APathIsOneOfMembersThatThereAre) {
  start(3, 2);
  EXPECT_TRUE(book_.exists({2, 1}, true));
  EXPECT_FALSE(book_.exists({2, 1}, false));
  EXPECT_FALSE(book_.exists({0, 2}, true));
  EXPECT_FALSE(book_.exists({3, 1}, true));
  EXPECT_FALSE(book_.exists({200, 1}, true));
  EXPECT_TRUE(book_.exists({1, 2}, false));
}

TEST_F(Book, OnTheDefaultASpareWithoutItsMembersIsWanted) {
  start(2, 2);
  EXPECT_EQ(book_.current(), kBest);
  EXPECT_EQ(order(), (Paths{kOne}));
  ready(kOne);
  EXPECT_EQ(next(), std::nullopt) << "one is enough";
  EXPECT_EQ(again_, Time::max());
}

TEST_F(Book, OneNicMeansNoOtherPath) {
  start(1, 4);
  EXPECT_EQ(next(), std::nullopt);
  start(4, 1);
  EXPECT_EQ(next(), std::nullopt);
}

TEST_F(Book, SeekingTriesEveryPathTheBestFirst) {
  start(2, 2);
  book_.current_set(std::nullopt);
  EXPECT_EQ(order(), (Paths{kBest, kOne, {0, 1}, {1, 0}}));
  ready({0, 1});
  EXPECT_EQ(next(), std::nullopt);
}

TEST_F(Book, PathsOfMembersThatAreDownAreNotTried) {
  start(3, 3);
  book_.current_set(std::nullopt);
  book_.own_up_set(0b110);
  book_.peer_up_set(0b011);
  EXPECT_EQ(order(), (Paths{kOne, {1, 0}, {2, 0}, {2, 1}}));
  book_.peer_up_set(0);
  EXPECT_EQ(next(), std::nullopt);
}

// Otherwise such a path would be chosen again and again, and never tried.
TEST_F(Book, PathsOfAMemberWithoutAQpAreNotTried) {
  start(2, 2);
  book_.own_lacks(1);
  EXPECT_EQ(next(), std::nullopt);
  book_.current_set(std::nullopt);
  EXPECT_EQ(order(), (Paths{kBest, {0, 1}}));
  book_.own_up_set(0xff);
  EXPECT_EQ(order(), (Paths{kBest, {0, 1}})) << "its port has nothing to do with that";
  book_.current_set(PathName{0, 1});
  book_.peer_up_set(0b10);
  EXPECT_EQ(blocked(), std::nullopt) << "nothing is given up for it";
}

// Half of the groups of a NIC prefer one member, the other half another; all prefer the default
// path to both.
TEST_F(Book, SpreadMovesGroupsToDifferentMembers) {
  for (uint64_t spread = 0; spread < 4; spread++) {
    start(3, 3, spread);
    EXPECT_EQ(book_.cost(kBest), 0);
    EXPECT_EQ(order().at(0), spread % 2 == 0 ? kOne : kTwo) << spread;
    for (PathName cross : {PathName{0, 1}, {1, 0}, {2, 1}}) {
      EXPECT_GT(book_.cost(cross), book_.cost(kOne));
      EXPECT_GT(book_.cost(cross), book_.cost(kTwo));
    }
  }
}

TEST_F(Book, AQpConnectedToItselfStaysOnOneMember) {
  start(3, 3, 0, true);
  book_.current_set(std::nullopt);
  EXPECT_EQ(order(), (Paths{kBest, kOne, kTwo}));
}

// Off the default path, a group looks for the way back for ever, and also keeps a spare.
TEST_F(Book, OffTheDefaultBetterPathsAreWantedBesideTheSpare) {
  start(3, 3);
  book_.current_set(kOne);
  EXPECT_EQ(order().at(0), kBest);
  ready(kTwo);
  EXPECT_EQ(order(), (Paths{kBest})) << "worse than the current one: only as a spare";
  EXPECT_EQ(book_.better_ready(), nullptr);
  ready(kBest, 7);
  ASSERT_NE(book_.better_ready(), nullptr);
  EXPECT_EQ(book_.better_ready()->path, kBest);
  EXPECT_EQ(book_.better_ready()->generation, 7u);
  EXPECT_EQ(next(), std::nullopt);
}

TEST_F(Book, AcrossRailsAnyStraightPathIsBetter) {
  start(2, 2);
  book_.current_set(PathName{0, 1});
  // Both members of the current path are taken: only the other path across rails could stand beside
  // it.
  EXPECT_EQ(order(), (Paths{{1, 0}}));
  book_.current_set(PathName{1, 0});
  ready({0, 1});
  EXPECT_NE(book_.best_ready(), nullptr);
}

TEST_F(Book, AStraightPathIsBlockedByAPathAcrossRails) {
  start(3, 3);
  EXPECT_EQ(blocked(), std::nullopt);
  book_.current_set(kTwo);
  EXPECT_EQ(blocked(), std::nullopt) << "they have no NIC in common and are tried beside it";
  book_.current_set(PathName{0, 1});
  EXPECT_EQ(blocked(), kBest);
  book_.own_up_set(0b110);
  EXPECT_EQ(blocked(), kOne);
  book_.peer_up_set(0b101);
  EXPECT_EQ(blocked(), std::nullopt) << "2-2 has no NIC in common with it";
  book_.current_set(PathName{2, 1});
  EXPECT_EQ(blocked(), kTwo);
  book_.current_set(std::nullopt);
  EXPECT_EQ(blocked(), std::nullopt);
}

TEST_F(Book, AcrossRailsNothingIsGivenUpForAnotherPathAcross) {
  start(3, 3);
  book_.current_set(PathName{2, 0});
  book_.own_up_set(0b110);
  book_.peer_up_set(0b001);
  EXPECT_EQ(blocked(), std::nullopt) << "1-0 is better by little";
}

TEST_F(Book, OfTheBlockedWhatFailedLessOftenComesFirst) {
  start(2, 2);
  book_.current_set(PathName{0, 1});
  links_[kBest].failures = 1;
  EXPECT_EQ(blocked(), kOne);
  links_[kOne].failures = 1;
  EXPECT_EQ(blocked(), kBest);
}

TEST_F(Book, AMemberHasOneConnection) {
  start(3, 3);
  ready(kOne);
  ready(kTwo);
  ready({1, 2}, 3);
  ASSERT_EQ(book_.all_ready().size(), 1u);
  EXPECT_EQ(book_.all_ready()[0].path, (PathName{1, 2}));
}

TEST_F(Book, ThePathThatCarriesIsNotReadyAnyMore) {
  start(3, 3);
  ready(kOne);
  ready(kTwo);
  book_.current_set(kOne);
  ASSERT_EQ(book_.all_ready().size(), 1u);
  EXPECT_EQ(book_.best_ready()->path, kTwo);
}

TEST_F(Book, WhatGoesDownIsNotReady) {
  start(3, 3);
  ready(kOne);
  book_.ready_clean();
  EXPECT_EQ(book_.all_ready().size(), 1u);
  book_.peer_up_set(0b101);
  book_.ready_clean();
  EXPECT_EQ(book_.best_ready(), nullptr);
}

TEST_F(Book, TheBestOfTheReadyIsTaken) {
  start(4, 4);
  ready({3, 2});
  ready(kOne);
  EXPECT_EQ(book_.best_ready()->path, kOne);
  book_.ready_drop(kOne);
  EXPECT_EQ(book_.best_ready()->path, (PathName{3, 2}));
}

TEST_F(Book, ALinkThatFailedRestsAndSaysForHowLong) {
  start(2, 2);
  links_[kOne].failures = 1;
  links_[kOne].pause(now_, milliseconds(20));
  EXPECT_EQ(next(), std::nullopt);
  EXPECT_EQ(again_, now_ + milliseconds(20));
  now_ += milliseconds(20);
  EXPECT_EQ(next(), kOne);
}

// An attempt may take longer than the other paths rest: two paths must not take turns while a third
// waits.
TEST_F(Book, WhatFailedLessOftenComesFirst) {
  start(2, 2);
  book_.current_set(std::nullopt);
  Paths tried;
  for (int i = 0; i < 5; i++) {
    const auto path = next();
    ASSERT_TRUE(path);
    tried.push_back(*path);
    links_[*path].failures++;
  }
  EXPECT_EQ(tried, (Paths{kBest, kOne, {0, 1}, {1, 0}, kBest}));
}

// Thousands of groups must not all try a link that is known to fail.
TEST_F(Book, OneGroupTriesALinkThatFailed) {
  start(2, 2);
  links_[kOne].failures = 1;
  links_[kOne].trying = 77;
  EXPECT_EQ(next(5), std::nullopt);
  EXPECT_EQ(next(77), kOne);
  links_[kOne].failures = 0;
  EXPECT_EQ(next(5), kOne) << "one that works is open to all";
}

// One whose traffic stands still relies on none that has time.
TEST_F(Book, AGroupThatSeeksTriesALinkBesideOneThatDoesNot) {
  start(2, 2);
  book_.current_set(std::nullopt);
  never(kBest), never({0, 1}), never({1, 0});
  links_[kOne].failures = 1;
  links_[kOne].trying = 77;
  EXPECT_EQ(next(5), kOne);
  links_[kOne].seeker_tries = true;
  EXPECT_EQ(next(5), std::nullopt);
}

TEST_F(Book, AGroupThatSeeksPausesForAShortTimeWhoeverFailed) {
  start(2, 2);
  never(kBest), never({0, 1}), never({1, 0});
  links_[kOne].failures = 9;
  links_[kOne].pause(now_, std::chrono::seconds(10));
  const Time calm = now_ + std::chrono::seconds(10);
  EXPECT_EQ(next(), std::nullopt);
  EXPECT_EQ(again_, calm);
  book_.current_set(std::nullopt);
  EXPECT_EQ(next(), std::nullopt);
  EXPECT_EQ(again_, now_ + NicPair::kPauseSeeking);
  now_ = again_;
  EXPECT_EQ(next(), kOne);
}

// A group whose traffic stands still tries first what is least in doubt.
class Doubted : public Book {
 protected:
  Doubted() {
    start(4, 4);
    book_.current_set(std::nullopt);
  }
  void silent(PathName path) {
    links_[path].failed(now_ += milliseconds(1), true);
    never(path);
  }
  void passed(PathName path) {
    links_[path].passed = now_ += milliseconds(1);
    links_[path].failures = 0;
  }
};

TEST_F(Doubted, NicsThatWereTriedInVainComeLater) {
  silent(kBest);
  silent({0, 1});
  silent(kTwo);
  EXPECT_EQ(next(), (PathName{3, 3}));
  silent({3, 3});
  EXPECT_EQ(next(), kOne) << "only one of its NICs is in doubt";
}

TEST_F(Doubted, ThePathThatWasLeftComesLast) {
  links_[kBest].doubt(now_, true);
  EXPECT_EQ(next(), kOne);
  never(kOne), never(kTwo), never({3, 3});
  EXPECT_EQ(next(), (PathName{1, 2}));
}

TEST_F(Doubted, WhatThePeerDoesNotAnswerComesLater) {
  book_.unanswered(kBest);
  book_.unanswered(kOne);
  EXPECT_EQ(next(), kTwo);
  book_.answered(kOne);
  EXPECT_EQ(next(), kOne) << "the answer was only late";
  book_.unanswered(kOne);
  book_.current_set(kTwo);
  book_.current_set(std::nullopt);
  EXPECT_EQ(next(), kBest) << "another search";
}

TEST_F(Doubted, WhereOneNicWorksTheOtherDoesNot) {
  silent(kBest);
  silent(kOne);
  silent(kTwo);
  silent({3, 3});
  passed({0, 1});  // so it is NIC 0 of the peer, and NIC 1 here
  never({0, 1});
  EXPECT_EQ(next(), (PathName{0, 2}));
  EXPECT_GT(Doubts(links_).of({1, 2}), Doubts(links_).of({2, 3}));
  EXPECT_GT(Doubts(links_).of({2, 0}), Doubts(links_).of({2, 3}));
}

TEST_F(Doubted, WhatPassedBeforeSaysNothing) {
  passed({0, 1});
  silent(kBest);
  EXPECT_EQ(Doubts(links_).of(kBest), 2);
  EXPECT_EQ(Doubts(links_).of({0, 1}), 1);
}

TEST_F(Doubted, ANicThatIsKnownToBeDownExplainsTheSilence) {
  links_[kBest].failed(now_, false);
  links_[kOne].rest(now_, false);
  EXPECT_EQ(Doubts(links_).of(kBest) + Doubts(links_).of(kOne), 0);
}

TEST_F(Doubted, WhatFailedLessOftenComesFirstAllTheSame) {
  for (uint8_t leader = 0; leader < 4; leader++) {
    for (uint8_t follower = 0; follower < 4; follower++) {
      if (leader == follower || leader + follower == 5) continue;
      links_[{leader, follower}].failures = 1;
      links_[{leader, follower}].pauses_end();
    }
  }
  silent(kBest), silent(kOne), silent(kTwo), silent({3, 3});
  EXPECT_EQ(next(), (PathName{2, 3}));
}

TEST_F(Doubted, AGroupWhoseTrafficFlowsTakesTheStraightPathsInOrder) {
  book_.current_set(kBest);
  silent({1, 2});
  EXPECT_EQ(next(), kOne);
}

TEST_F(Doubted, ANicThatIsToBeLeftIsInNoHurry) {
  silent(kBest), silent(kOne), silent(kTwo), silent({3, 3});
  book_.own_avoided_set(0b1110);
  EXPECT_EQ(next(), (PathName{0, 1}));
}

}  // namespace
}  // namespace shift::control
