// Defining functions under the names of the C library's, without clashing with its headers (which
// redefine them as macros or inline functions, depending on how we are compiled).
#pragma once

// CXEMU_EXPORT(int, close, (int fd)) { ... } defines the symbol `close`, seen by everybody.
#define CXEMU_EXPORT(result, symbol, parameters)               \
  extern "C" result hook_##symbol parameters __asm__(#symbol); \
  extern "C" [[gnu::visibility("default")]] result hook_##symbol parameters
