// The event ring: order, overwriting, and several writers with a reader.
#include "fabric/event_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <thread>

#include "fabric/fabric.h"

namespace cxemu {
namespace {

TEST(EventLogTest, WhatIsWrittenIsRead) {
  const auto fabric = std::make_unique<FabricFile>();
  event_log(*fabric,
            {.kind = EventKind::kQpError, .nic = 9, .qpn = 77, .syndrome = 21, .text = "x"});
  Event event;
  ASSERT_TRUE(event_read(*fabric, 1, &event));
  EXPECT_EQ(event.kind, EventKind::kQpError);
  EXPECT_EQ(event.nic, 9);
  EXPECT_EQ(event.qpn, 77u);
  EXPECT_EQ(event.syndrome, 21u);
  EXPECT_EQ(event.text, "x");
  EXPECT_EQ(event.pid, getpid());
  EXPECT_GT(event.time_ns, 0u);
  EXPECT_FALSE(event_read(*fabric, 2, &event));
  EXPECT_FALSE(event_read(*fabric, 0, &event));
}

TEST(EventLogTest, LongTextsAreCutAndOldEventsForgotten) {
  const auto fabric = std::make_unique<FabricFile>();
  for (uint32_t i = 0; i < kEventsKept + 5; i++)
    event_log(*fabric, {.qpn = i, .text = std::string(200, 'y')});
  Event event;
  EXPECT_FALSE(event_read(*fabric, 5, &event));
  ASSERT_TRUE(event_read(*fabric, 6, &event));
  EXPECT_EQ(event.qpn, 5u);
  EXPECT_EQ(event.text, std::string(kEventText - 1, 'y'));
}

TEST(EventLogTest, WritersInParallelLoseNothing) {
  const auto fabric = std::make_unique<FabricFile>();
  constexpr uint32_t kEach = 200;
  std::vector<std::thread> writers;
  for (uint32_t w = 0; w < 4; w++)
    writers.emplace_back([&, w] {
      for (uint32_t i = 0; i < kEach; i++)
        event_log(*fabric, {.qpn = w << 16 | i, .text = std::to_string(w << 16 | i)});
    });
  std::vector<uint32_t> next(4, 0);
  for (uint64_t seen = 0; seen < 4 * kEach;) {
    Event event;
    if (!event_read(*fabric, seen + 1, &event)) {
      event_wait(*fabric, seen);
      continue;
    }
    seen++;
    EXPECT_EQ(event.text, std::to_string(event.qpn));
    EXPECT_EQ(event.qpn & 0xffff, next[event.qpn >> 16]++) << "each writer's in its order";
  }
  for (std::thread& writer : writers) writer.join();
}

}  // namespace
}  // namespace cxemu
