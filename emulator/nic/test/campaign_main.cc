// Runs campaigns: cxemu_nic_campaign [--seeds N] [--first SEED] [--messages N] [--may-fail 0|1]
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "campaign.h"
#include "courier.h"

namespace {

int usage() {
  fprintf(stderr,
          "usage: cxemu_nic_campaign [--seeds N] [--first SEED] [--messages N] "
          "[--may-fail 0|1]\n");
  return 4;
}

}  // namespace

int main(int count, char** arguments) {
  uint64_t seeds = 10, first = 1, messages = 10'000;
  int may_fail = -1;  // both
  for (int i = 1; i < count; i += 2) {
    if (i + 1 == count) return usage();
    const uint64_t value = strtoull(arguments[i + 1], nullptr, 10);
    if (strcmp(arguments[i], "--seeds") == 0) {
      seeds = value;
    } else if (strcmp(arguments[i], "--first") == 0) {
      first = value;
    } else if (strcmp(arguments[i], "--messages") == 0) {
      messages = value;
    } else if (strcmp(arguments[i], "--may-fail") == 0) {
      may_fail = value != 0 ? 1 : 0;
    } else {
      return usage();
    }
  }
  int wrong = 0;
  for (uint64_t seed = first; seed < first + seeds; seed++) {
    for (int mode = 0; mode < 2; mode++) {
      if (may_fail >= 0 && mode != may_fail) continue;
      const auto report = cxemu::test::campaign_run(
          {.seed = seed, .messages = static_cast<uint32_t>(messages), .may_fail = mode != 0});
      printf(
          "seed %lu, may fail %d: %u rounds, %lu messages, %lu MB, %lu packets, %lu sent again, "
          "%lu QPs failed: %s\n",
          seed, mode, report.rounds, report.messages, report.bytes >> 20, report.packets,
          report.retransmits, report.failures,
          report.problem.empty() ? "right" : report.problem.c_str());
      fflush(stdout);
      wrong += report.problem.empty() ? 0 : 1;
    }
    for (const auto service : cxemu::test::kCourierServices) {
      if (may_fail > 0) break;
      const auto report = cxemu::test::courier_run(service, seed, static_cast<uint32_t>(messages));
      printf("seed %lu, %s: %lu messages, %lu received, %lu packets spoiled: %s\n", seed,
             cxemu::test::courier_name(service), report.sent, report.received, report.spoiled,
             report.problem.empty() ? "right" : report.problem.c_str());
      fflush(stdout);
      wrong += report.problem.empty() ? 0 : 1;
    }
  }
  return wrong == 0 ? 0 : 1;
}
