#include "nic/held_writes.h"

#include <gtest/gtest.h>

namespace cxemu {
namespace {

constexpr uint8_t kFirst[] = {1, 2}, kSecond[] = {3};

TEST(HeldWrites, NothingIsHeldByDefault) {
  uint8_t memory[2] = {};
  HeldWrites held(0);
  held.write(memory, kFirst, 2, 100);
  EXPECT_EQ(memory[1], 2);
  EXPECT_EQ(held.due_ns(), UINT64_MAX);
}

TEST(HeldWrites, EachArrivesWhenItsTimeHasCome) {
  uint8_t memory[2] = {};
  HeldWrites held(50);
  held.write(memory, kFirst, 2, 100);
  held.write(memory, kSecond, 1, 120);
  EXPECT_EQ(held.due_ns(), 150u);
  held.release_due(149);
  EXPECT_EQ(memory[0], 0);
  held.release_due(150);
  EXPECT_EQ(memory[0], 1);
  EXPECT_EQ(memory[1], 2);
  EXPECT_EQ(held.due_ns(), 170u);
}

TEST(HeldWrites, AReleaseLetsAllArriveInTheirOrder) {
  uint8_t memory[2] = {};
  HeldWrites held(50);
  held.write(memory, kFirst, 2, 100);
  held.write(memory, kSecond, 1, 120);
  held.release();
  EXPECT_EQ(memory[0], 3);
  EXPECT_EQ(held.due_ns(), UINT64_MAX);
}

TEST(HeldWrites, WhatIsWrittenIsCopied) {
  uint8_t memory[1] = {}, packet[1] = {9};
  HeldWrites held(50);
  held.write(memory, packet, 1, 0);
  packet[0] = 0;
  held.release();
  EXPECT_EQ(memory[0], 9);
}

}  // namespace
}  // namespace cxemu
