// The fuzzer's entry point; FUZZ_NAMESPACE and FUZZ_TARGET name the target.
#include <cstdint>
#include <span>

namespace FUZZ_NAMESPACE {
void FUZZ_TARGET(std::span<const uint8_t> input);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FUZZ_NAMESPACE::FUZZ_TARGET({data, size});
  return 0;
}
