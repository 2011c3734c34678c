// Runs the corpora of the emulator's targets.
#include "fuzz/replay.h"

#include "fuzz/target.h"

namespace cxemu::fuzz {
namespace {

const std::filesystem::path kCorpus = CXEMU_FUZZ_CORPUS;

TEST(FuzzReplay, Packets) {
  fuzzing::replay(kCorpus / "packets", packets);
}
TEST(FuzzReplay, Commands) {
  fuzzing::replay(kCorpus / "commands", commands);
}
TEST(FuzzReplay, Wqes) {
  fuzzing::replay(kCorpus / "wqes", wqes);
}

}  // namespace
}  // namespace cxemu::fuzz
