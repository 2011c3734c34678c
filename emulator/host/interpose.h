// Defines functions under the names of C library functions without clashing with its headers, which
// redefine them as macros or inline functions, depending on compiler options.
#pragma once

// CXEMU_EXPORT(int, close, (int fd)) { ... } defines the public symbol `close`.
#define CXEMU_EXPORT(result, symbol, parameters)               \
  extern "C" result hook_##symbol parameters __asm__(#symbol); \
  extern "C" [[gnu::visibility("default")]] result hook_##symbol parameters
