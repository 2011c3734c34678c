// Seeded campaigns of the services and queues that campaign.h leaves out: several senders send to
// one receiver over a bad wire. Each message tells its sender, its number and its content.
#pragma once

#include <cstdint>
#include <string>

namespace cxemu::test {

enum class CourierService {
  kRcShared,  // reliable connections with one shared receive queue
  kXrc,       // extended reliable connections with two shared receive queues
  kUc,        // unreliable connections with a receive queue each
  kUcShared,  // unreliable connections with a shared receive queue
  kUd,        // datagrams with a receive queue each
  kUdShared,
};
inline constexpr CourierService kCourierServices[] = {
    CourierService::kRcShared, CourierService::kXrc, CourierService::kUc,
    CourierService::kUcShared, CourierService::kUd,  CourierService::kUdShared};
const char* courier_name(CourierService service);

struct CourierReport {
  std::string problem;  // the first problem; empty: none
  uint64_t sent = 0, received = 0;
  uint64_t spoiled = 0;  // packets lost, doubled or damaged
};

// With an odd seed the wire only loses and damages packets; with an even seed it also reorders
// them.
CourierReport courier_run(CourierService service, uint64_t seed, uint32_t messages);

}  // namespace cxemu::test
