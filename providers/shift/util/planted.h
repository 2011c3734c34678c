// Bugs that are planted on purpose, so that the tests can prove that they would notice them. In a
// normal build, SHIFT_PLANT(name) is the constant false. A build with SHIFT_PLANTED_BUGS compares
// the name with the environment variable SHIFT_PLANT, once for each place.
#pragma once

#ifdef SHIFT_PLANTED_BUGS

#include <cstdlib>
#include <cstring>

#define SHIFT_PLANT(name)                                          \
  ([]() -> bool {                                                  \
    static const bool planted = [] {                               \
      const char* wanted = std::getenv("SHIFT_PLANT");             \
      return wanted != nullptr && std::strcmp(wanted, #name) == 0; \
    }();                                                           \
    return planted;                                                \
  }())

#else
#define SHIFT_PLANT(name) false
#endif
