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

}  // namespace
}  // namespace shift::fuzz
