// Runs Gloo's allreduce on its ibverbs transport and checks every element.
// Usage: gloo_check RANK RANKS STORE_FOLDER ALGORITHM COUNT ROUNDS SEED DEVICE GID_INDEX [meet]
// ALGORITHM: ring, ring_chunked, halving_doubling, bcube.
// meet: no rank ends before all ranks have everything. Without it a rank may end when its last
// messages are only posted.
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using Buffers = std::vector<double*>;
using Context = std::shared_ptr<gloo::Context>;

std::unique_ptr<gloo::Algorithm> algorithm_make(const std::string& name, const Context& context,
                                                const Buffers& buffers, int count) {
  if (name == "ring") {
    return std::make_unique<gloo::AllreduceRing<double>>(context, buffers, count);
  }
  if (name == "ring_chunked") {
    return std::make_unique<gloo::AllreduceRingChunked<double>>(context, buffers, count);
  }
  if (name == "halving_doubling") {
    return std::make_unique<gloo::AllreduceHalvingDoubling<double>>(context, buffers, count);
  }
  if (name == "bcube") {
    return std::make_unique<gloo::AllreduceBcube<double>>(context, buffers, count);
  }
  throw std::invalid_argument("algorithm " + name);
}

// Elements are whole numbers, so that sums are exact in any order.
double element(int rank, int round, int index, unsigned seed) {
  return static_cast<double>((static_cast<unsigned>(index) * 31 + seed + 7u * round) % 8191 + 1) *
         (rank + 1);
}

// The ranks meet in the file store and not over the NICs.
void meet(gloo::rendezvous::FileStore& store, int rank, int ranks) {
  std::vector<std::string> keys;
  for (int i = 0; i < ranks; i++) keys.push_back("over" + std::to_string(i));
  store.set(keys[static_cast<size_t>(rank)], {'y'});
  store.wait(keys, std::chrono::seconds(30));
}

bool run(int rank, int ranks, const char* const* arguments, bool meets) {
  const std::string store_folder = arguments[0], name = arguments[1];
  const int count = atoi(arguments[2]), rounds = atoi(arguments[3]);
  const auto seed = static_cast<unsigned>(atoi(arguments[4]));

  gloo::transport::ibverbs::attr attributes;
  attributes.name = arguments[5];
  attributes.port = 1;
  attributes.index = atoi(arguments[6]);
  auto device = gloo::transport::ibverbs::CreateDevice(attributes);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(store_folder);
  context->setTimeout(std::chrono::seconds(40));
  context->connectFullMesh(store, device);

  std::vector<double> numbers(static_cast<size_t>(count));
  // It is not destroyed, for the reason below. After an exception that would also hide its text.
  auto* const reduce = algorithm_make(name, context, Buffers{numbers.data()}, count).release();
  gloo::BarrierAllToOne barrier(context);
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < count; i++) numbers[static_cast<size_t>(i)] = element(rank, round, i, seed);
    const auto begin = std::chrono::steady_clock::now();
    reduce->run();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    printf("gloo_check: round %d took %.3f ms\n", round, took.count());
    for (int i = 0; i < count; i++) {
      const double wanted = element(0, round, i, seed) * ranks * (ranks + 1) / 2;
      const double got = numbers[static_cast<size_t>(i)];
      if (got == wanted) continue;
      printf("gloo_check FAILED: rank %d, round %d, element %d: %f instead of %f\n", rank, round, i,
             got, wanted);
      return false;
    }
  }
  barrier.run();
  if (meets) meet(store, rank, ranks);
  printf("gloo_check ok: %d rounds\n", rounds);
  fflush(stdout);
  // No destructor runs: this release of the library aborts in one when a send's completion was not
  // read yet. The last messages are still on their way, so both ways to end must let them out.
  if ((static_cast<unsigned>(rank) + seed) % 2 == 0) _exit(0);
  std::quick_exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);  // because a destructor may abort
  if (argc != 10 && argc != 11) return 2;
  try {
    return run(atoi(argv[1]), atoi(argv[2]), argv + 3, argc == 11) ? 0 : 3;
  } catch (const std::exception& error) {
    printf("gloo_check FAILED: %s\n", error.what());
    return 4;
  }
}
