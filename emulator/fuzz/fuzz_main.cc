// The fuzzer's entry point; CXEMU_FUZZ_TARGET names the target.
#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  cxemu::fuzz::CXEMU_FUZZ_TARGET({data, size});
  return 0;
}
