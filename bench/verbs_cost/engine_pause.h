// Keeps the emulator's engine out of a stretch of code. On a real NIC there is nothing to keep out.
#pragma once

namespace bench {

class EnginePause {
 public:
  EnginePause();
  ~EnginePause();
  EnginePause(const EnginePause&) = delete;
  EnginePause& operator=(const EnginePause&) = delete;

  // Whether there is an emulator that knows how to pause.
  static bool available();
};

}  // namespace bench
