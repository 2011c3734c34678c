#include "sim/jobs.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "sim/simulation.h"

namespace shift::sim {
namespace {

// All processes share these counters.
struct Counters {
  std::atomic<uint64_t> run{0}, broken{0}, asking{0}, rounds{0}, steps{0};
};

void run_job(const Range& range, unsigned job, Counters& counters) {
  for (uint64_t i = job; i < range.count && counters.broken < range.most; i += range.jobs) {
    const Schedule schedule = schedule_make(range.first + i);
    Simulation simulation(schedule, nullptr);
    const std::string& broken = simulation.run();
    counters.run++;
    counters.asking += schedule.asks();
    counters.rounds += simulation.rounds();
    counters.steps += simulation.steps();
    if (broken.empty()) continue;
    counters.broken++;
    std::printf("seed %llu: %s\n", static_cast<unsigned long long>(range.first + i),
                broken.c_str());
    std::fflush(stdout);
  }
}

}  // namespace

Totals run_all(const Range& range) {
  void* memory =
      mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int ends[2];
  if (memory == MAP_FAILED || pipe(ends) != 0) std::abort();
  auto& counters = *new (memory) Counters;
  std::fflush(stdout);
  for (unsigned job = 0; job < range.jobs; job++) {
    const pid_t child = fork();
    if (child < 0) std::abort();
    if (child > 0) continue;
    run_job(range, job, counters);
    _exit(0);
  }
  close(ends[1]);
  // The pipe is closed when the last process ends.
  const auto begun = std::chrono::steady_clock::now();
  for (pollfd end{ends[0], POLLIN, 0}; poll(&end, 1, 10'000) == 0;) {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begun;
    const uint64_t run = counters.run;
    std::fprintf(stderr, "%llu of %llu schedules after %.0f s, %.0f a second, %llu broken\n",
                 static_cast<unsigned long long>(run), static_cast<unsigned long long>(range.count),
                 passed.count(), static_cast<double>(run) / passed.count(),
                 static_cast<unsigned long long>(counters.broken.load()));
  }
  close(ends[0]);
  Totals sum{counters.run, counters.broken, counters.asking, counters.rounds, counters.steps};
  for (int status; wait(&status) > 0;) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    std::printf("a process died, status 0x%x\n", static_cast<unsigned>(status));
    sum.broken++;
  }
  munmap(memory, sizeof(Counters));
  return sum;
}

}  // namespace shift::sim
