// Runs the corpora of the layer's targets.
#include "emulator/fuzz/replay.h"

#include "tests/fuzz/targets.h"

namespace shift::fuzz {
namespace {

const std::filesystem::path kCorpus = SHIFT_FUZZ_CORPUS;

TEST(FuzzReplay, Messages) {
  fuzzing::replay(kCorpus / "messages", messages);
}
TEST(FuzzReplay, Framing) {
  fuzzing::replay(kCorpus / "framing", framing);
}
TEST(FuzzReplay, Config) {
  fuzzing::replay(kCorpus / "config", fuzz::config);
}
TEST(FuzzReplay, First) {
  fuzzing::replay(kCorpus / "first", first, 30);
}
TEST(FuzzReplay, Local) {
  fuzzing::replay(kCorpus / "local", local, 30);
}
TEST(FuzzReplay, Store) {
  fuzzing::replay(kCorpus / "store", store);
}
TEST(FuzzReplay, Udp) {
  fuzzing::replay(kCorpus / "udp", udp, 30);
}
TEST(FuzzReplay, Coordinator) {
  fuzzing::replay(kCorpus / "coordinator", coordinator, 100);
}

}  // namespace
}  // namespace shift::fuzz
