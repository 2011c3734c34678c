#include "ops/pairing.h"

#include <gtest/gtest.h>

namespace shift::ops {
namespace {

using Nics = std::vector<NicFacts>;
using Partners = std::vector<int>;

// A function of a card of its own below that switch, if the address does not say otherwise.
NicFacts nic(const std::string& upstream, const std::string& function, double gigabits, int numa) {
  NicFacts facts;
  facts.kind = "1 mlx5_core";
  facts.link_layer = "Ethernet";
  facts.gigabits = gigabits;
  facts.place = {upstream, function};
  facts.numa_node = numa;
  return facts;
}

NicFacts unknown() {
  return NicFacts{};
}

TEST(Pairing, NeighboursArePairsWhereNothingTellsThemApart) {
  EXPECT_EQ(partners_of(Nics(4)), (Partners{1, 0, 3, 2}));
  EXPECT_EQ(partners_of({}), Partners{});
  EXPECT_EQ(partners_of(Nics(1)), Partners{-1});
}

TEST(Pairing, OneThatIsLeftOverIsBackedAllTheSame) {
  EXPECT_EQ(partners_of(Nics(3)), (Partners{1, 0, 0}));
}

TEST(Pairing, UnlikeNicsNeverBackEachOther) {
  Nics nics(4, nic("0000:00:01.0", "0000:01:00.0", 100, 0));
  nics[0].link_layer = nics[2].link_layer = "InfiniBand";
  EXPECT_EQ(partners_of(nics), (Partners{2, 3, 0, 1}));
  nics[0].kind = "1 rxe";
  EXPECT_EQ(partners_of(nics), (Partners{-1, 3, -1, 1}));
}

TEST(Pairing, SpeedsMatterOnlyWhereThereIsAChoice) {
  Nics nics(2, nic("0000:00:01.0", "0000:01:00.0", 100, 0));
  EXPECT_FALSE(speeds_matter(nics));
  nics.push_back(nics.front());
  EXPECT_TRUE(speeds_matter(nics));
  nics.back().link_layer = "InfiniBand";
  EXPECT_FALSE(speeds_matter(nics));
}

// Four for the storage's network lie between those of the computation.
TEST(Pairing, OneSpeedComesFirst) {
  const Nics nics{
      nic("0000:00:01.0", "0000:01:00.0", 400, 0), nic("0000:00:02.0", "0000:02:00.0", 200, 0),
      nic("0000:40:01.0", "0000:41:00.0", 200, 1), nic("0000:40:02.0", "0000:42:00.0", 400, 1)};
  EXPECT_EQ(partners_of(nics), (Partners{3, 2, 1, 0}));
}

TEST(Pairing, OfTwoCardsWithTwoPortsEachBacksTheOther) {
  const Nics nics{
      nic("0000:00:01.0", "0000:01:00.0", 100, 0), nic("0000:00:01.0", "0000:01:00.1", 100, 0),
      nic("0000:00:02.0", "0000:02:00.0", 100, 0), nic("0000:00:02.0", "0000:02:00.1", 100, 0)};
  EXPECT_EQ(partners_of(nics), (Partners{2, 3, 0, 1}));
}

TEST(Pairing, TwoPortsOfTheOnlyCardBackEachOther) {
  const Nics nics{nic("0000:00:01.0", "0000:01:00.0", 100, 0),
                  nic("0000:00:01.0", "0000:01:00.1", 100, 0)};
  EXPECT_EQ(partners_of(nics), (Partners{1, 0}));
}

TEST(Pairing, TheSameNumaNodeAndThenAShortWayAreBetter) {
  const Nics nics{
      nic("0000:00:01.0", "0000:01:00.0", 100, 0), nic("0000:80:01.0", "0000:81:00.0", 100, 1),
      nic("0000:00:02.0", "0000:02:00.0", 100, 0), nic("0000:80:01.0", "0000:82:00.0", 100, 1)};
  EXPECT_EQ(partners_of(nics), (Partners{2, 3, 0, 1}));
  const Nics below_switches{
      nic("0000:00:01.0", "0000:01:00.0", 100, 0), nic("0000:00:02.0", "0000:02:00.0", 100, 0),
      nic("0000:00:01.0", "0000:03:00.0", 100, 0), nic("0000:00:02.0", "0000:04:00.0", 100, 0)};
  EXPECT_EQ(partners_of(below_switches), (Partners{2, 3, 0, 1}));
}

TEST(Pairing, WhatIsNotKnownTellsNothingApart) {
  Nics nics{nic("0000:00:01.0", "0000:01:00.0", 100, 0), unknown(), unknown(),
            nic("0000:00:01.0", "0000:02:00.0", 100, 0)};
  EXPECT_EQ(partners_of(nics), (Partners{1, 0, 3, 2}));
}

TEST(Backups, AreAllThatFitTheBestOnesFirst) {
  Nics nics{
      nic("0000:00:01.0", "0000:01:00.0", 100, 0), nic("0000:80:01.0", "0000:81:00.0", 100, 1),
      nic("0000:00:01.0", "0000:01:00.1", 100, 0), nic("0000:00:02.0", "0000:02:00.0", 100, 0),
      nic("0000:00:03.0", "0000:03:00.0", 50, 0)};
  EXPECT_EQ(all_backups_of(nics, 0), (std::vector{3, 1, 2, 4}));
  nics[3].kind = "1 rxe";
  EXPECT_EQ(all_backups_of(nics, 0), (std::vector{1, 2, 4}));
  EXPECT_EQ(all_backups_of(nics, 3), std::vector<int>{});
}

using Capacity = std::vector<uint8_t>;
constexpr Config::Distance kUsual{1, 0.6, 0.3};

TEST(Capacities, FollowSpeedAndDistance) {
  const Nics nics{nic("0000:00:01.0", "0000:01:00.0", 400, 0),   // the default
                  nic("0000:00:01.0", "0000:02:00.0", 400, 0),   // below the same switch
                  nic("0000:00:02.0", "0000:03:00.0", 400, 0),   // at the same node
                  nic("0000:80:01.0", "0000:81:00.0", 400, 1),   // at another one
                  nic("0000:00:01.0", "0000:01:00.1", 400, 0),   // on the default's card
                  nic("0000:00:01.0", "0000:04:00.0", 100, 0)};  // slow
  EXPECT_EQ(capacities_of(nics, kUsual), (Capacity{200, 200, 120, 60, 60, 50}));
}

// Where all NICs are equally good for all memory, or a site has measured its own.
TEST(Capacities, TheFactorsOfDistanceCanBeSet) {
  const Nics nics{nic("0000:00:01.0", "0000:01:00.0", 400, 0),   // the default
                  nic("0000:00:01.0", "0000:02:00.0", 400, 0),   // below the same switch
                  nic("0000:00:02.0", "0000:03:00.0", 400, 0),   // at the same node
                  nic("0000:80:01.0", "0000:81:00.0", 400, 1),   // at another one
                  nic("0000:00:01.0", "0000:01:00.1", 400, 0)};  // on the default's card
  EXPECT_EQ(capacities_of(nics, {1, 1, 1}), (Capacity{200, 200, 200, 200, 200}));
  EXPECT_EQ(capacities_of(nics, {0.9, 0.5, 0.01}), (Capacity{200, 180, 100, 2, 2}));
}

TEST(Capacities, TheBusCountsWhereItIsSlower) {
  Nics nics(3, nic("0000:00:01.0", "0000:01:00.0", 400, 0));
  nics[1].place.back() = "0000:02:00.0";
  nics[2].place.back() = "0000:03:00.0";
  nics[1].bus_gigabits = 800;
  nics[2].bus_gigabits = 100;
  EXPECT_EQ(capacities_of(nics, kUsual), (Capacity{200, 200, 50}));
}

TEST(Capacities, AreAlikeWhereASpeedIsNotKnown) {
  Nics nics(3, nic("0000:00:01.0", "0000:01:00.0", 400, 0));
  nics[1] = nics[2] = unknown();
  EXPECT_EQ(capacities_of(nics, kUsual), (Capacity{200, 200, 200}));
  EXPECT_EQ(capacities_of({}, kUsual), Capacity{});
}

}  // namespace
}  // namespace shift::ops
