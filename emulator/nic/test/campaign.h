// Seeded campaigns: several connections between two NICs over a wire that loses, doubles, reorders,
// delays and damages packets, with a random mix of all operations. A model knows what every byte,
// every completion and every counter must be.
#pragma once

#include <cstdint>
#include <string>

namespace cxemu::test {

struct CampaignOptions {
  uint64_t seed = 1;
  uint32_t messages = 10'000;
  // Uses few retries, so that connections break; otherwise nothing may fail.
  bool may_fail = false;
};

struct CampaignReport {
  std::string problem;  // the first problem; empty: none
  uint32_t rounds = 0;
  uint64_t messages = 0, bytes = 0;
  uint64_t packets = 0, retransmits = 0;
  uint64_t failures = 0;  // QPs that ended by an error
};

CampaignReport campaign_run(const CampaignOptions& options);

}  // namespace cxemu::test
