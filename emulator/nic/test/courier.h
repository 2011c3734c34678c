// Seeded campaigns of the services and queues that campaign.h leaves out: several senders to one
// receiver over a bad wire, by messages that say whose they are, which, and what must be in them.
#pragma once

#include <cstdint>
#include <string>

namespace cxemu::test {

enum class CourierService {
  kRcShared,  // reliable connections with one shared receive queue
  kXrc,       // extended ones with two
  kUc,        // unreliable connections with a receive queue each
  kUcShared,  // or with a shared one
  kUd,        // datagrams likewise
  kUdShared,
};
inline constexpr CourierService kCourierServices[] = {
    CourierService::kRcShared, CourierService::kXrc, CourierService::kUc,
    CourierService::kUcShared, CourierService::kUd,  CourierService::kUdShared};
const char* courier_name(CourierService service);

struct CourierReport {
  std::string problem;  // the first one; empty: none
  uint64_t sent = 0, received = 0;
  uint64_t spoiled = 0;  // packets lost, doubled or damaged
};

// An odd seed's wire only loses and damages packets, an even one's also changes their order.
CourierReport courier_run(CourierService service, uint64_t seed, uint32_t messages);

}  // namespace cxemu::test
