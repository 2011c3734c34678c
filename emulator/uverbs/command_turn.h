// What must hold before a command of a device file may run, and how long it takes.
#pragma once

#include <cstdint>
#include <mutex>

#include "uverbs/context.h"

namespace cxemu {

enum CommandTraits : uint8_t {
  kNoTraits = 0,
  kWorksWhenDead = 1 << 0,  // destroying succeeds on a dead device
  kWorksInChild = 1 << 1,   // of fork(), on the parent's device, as it needs no NIC
  kKernelAnswers = 1 << 2,  // by itself: all other commands go to the NIC's firmware
};
constexpr CommandTraits operator|(CommandTraits one, CommandTraits other) {
  return static_cast<CommandTraits>(uint8_t{one} | uint8_t{other});
}

// The turn of one command; once it is taken, it holds the engine's lock as long as it lives. While
// the firmware takes its time, as a fault says, only the calling thread waits, without any lock.
class CommandTurn {
 public:
  explicit CommandTurn(Context& context)
      : context_(context), lock_(context.engine().lock(), std::defer_lock) {}

  // Returns 0, or the errno with which the command fails. `starts`: it is get_context, which has to
  // be the first command, and only the first.
  [[nodiscard]] int take(CommandTraits traits, bool starts);

 private:
  int check(CommandTraits traits, bool starts) const;
  uint64_t due_ns(CommandTraits traits, uint64_t begun_ns) const;

  Context& context_;
  std::unique_lock<EngineLock> lock_;
};

}  // namespace cxemu
