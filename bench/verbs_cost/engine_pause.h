// Keeps the emulator's engine from running during a stretch of code. A real NIC needs no such
// pause.
#pragma once

namespace bench {

class EnginePause {
 public:
  EnginePause();
  ~EnginePause();
  EnginePause(const EnginePause&) = delete;
  EnginePause& operator=(const EnginePause&) = delete;

  // Whether there is an emulator that can pause.
  static bool available();
};

}  // namespace bench
