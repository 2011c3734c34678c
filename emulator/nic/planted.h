// Bugs planted on purpose, one for each rule of test/RULES.md, to prove that the tests would notice
// them. In a normal build CXEMU_PLANT(name) is the constant false; a build with CXEMU_PLANTED_BUGS
// compares the name with the environment variable CXEMU_PLANT, once per place. Do not use it in
// headers: inline code with and without bugs would mix.
#pragma once

#ifdef CXEMU_PLANTED_BUGS

#include <cstdlib>
#include <cstring>

#define CXEMU_PLANT(name)                                          \
  ([]() -> bool {                                                  \
    static const bool planted = [] {                               \
      const char* wanted = std::getenv("CXEMU_PLANT");             \
      return wanted != nullptr && std::strcmp(wanted, #name) == 0; \
    }();                                                           \
    return planted;                                                \
  }())

#else
#define CXEMU_PLANT(name) false
#endif
