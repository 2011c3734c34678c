#include "control/repeats.h"

#include <gtest/gtest.h>

#include <vector>

#include "net/test/virtual_loop.h"

namespace shift::control {
namespace {

using std::chrono::milliseconds;

// Channels are only compared.
const net::PeerChannel* channel(uintptr_t number) {
  return reinterpret_cast<const net::PeerChannel*>(number * 64);
}

class RepeatsTest : public ::testing::Test {
 protected:
  using Channels = std::vector<const net::PeerChannel*>;
  // What was said in so much time from now on.
  Channels said_in(milliseconds time) {
    time_.run_for(time);
    return std::exchange(said_, {});
  }

  net::VirtualTime time_;
  net::VirtualLoop loop_{time_};
  Channels said_;
  Repeats repeats_{loop_, [this](const net::PeerChannel* one) { said_.push_back(one); }};
};

TEST_F(RepeatsTest, TheOnlyConnectionIsToldAtOnce) {
  repeats_.connection_up(channel(1), true);
  EXPECT_EQ(said_, Channels{channel(1)});
  EXPECT_EQ(said_in(milliseconds(100)).size(), 1u);
}

TEST_F(RepeatsTest, ThoseThatJoinTogetherAreToldOnce) {
  for (int n = 0; n < 8; n++) {
    repeats_.connection_up(channel(1), false);
    time_.run_for(milliseconds(1));
  }
  EXPECT_TRUE(said_.empty());
  EXPECT_EQ(said_in(milliseconds(100)), Channels{channel(1)});
}

// The first of them does not wait longer because others follow.
TEST_F(RepeatsTest, ManyThatJoinOneAfterTheOtherAreToldInTime) {
  for (int n = 0; n < 50; n++) {
    repeats_.connection_up(channel(1), false);
    time_.run_for(milliseconds(2));
  }
  time_.run_for(Repeats::kTogether);
  EXPECT_GE(said_.size(), 8u);
  EXPECT_LE(said_.size(), 11u);
}

TEST_F(RepeatsTest, OneThatJoinsLaterIsToldAgain) {
  repeats_.connection_up(channel(1), false);
  EXPECT_EQ(said_in(milliseconds(20)).size(), 1u);
  repeats_.connection_up(channel(1), false);
  EXPECT_EQ(said_in(milliseconds(20)).size(), 1u);
}

TEST_F(RepeatsTest, EachChannelIsToldOfItsOwn) {
  repeats_.connection_up(channel(1), false);
  repeats_.connection_up(channel(2), false);
  EXPECT_EQ(said_in(milliseconds(20)).size(), 2u);
}

// All but one of the connections were lost before these were told: the rest is told at once.
TEST_F(RepeatsTest, WhatIsToldAtOnceIsNotToldLaterAsWell) {
  repeats_.connection_up(channel(1), false);
  repeats_.connection_up(channel(1), true);
  EXPECT_EQ(said_in(milliseconds(20)).size(), 1u);
}

// Another channel may be made at the same place.
TEST_F(RepeatsTest, AChannelThatEndedIsNotTold) {
  repeats_.connection_up(channel(1), false);
  repeats_.forget(channel(1));
  EXPECT_TRUE(said_in(milliseconds(20)).empty());
}

}  // namespace
}  // namespace shift::control
