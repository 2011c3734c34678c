// One end of a run, as the main loop sees it: a state machine that never blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace traffic {

class Driven {
 public:
  virtual ~Driven() = default;
  // Called once when all memory checks are done and both ends still hold their queue pairs.
  void on_inspect(std::function<void()> inspect) { inspect_ = std::move(inspect); }
  // No more messages, at either end, than what is on the way; then the checks of the end.
  virtual void stop() = 0;
  // One bounded pass; whether anything happened.
  virtual bool step() = 0;
  virtual bool is_done() const = 0;
  virtual bool is_stalled() const = 0;
  virtual int exit_code() const = 0;

  // Whether this end gets completions at all; if not it only needs to watch the side channel.
  virtual bool is_passive() const { return false; }
  // Nothing can happen before this time unless the other end or the NIC speaks; 0: unknown.
  virtual uint64_t idle_until_ns() const = 0;
  virtual uint64_t progress() const = 0;  // messages completed here plus consumed here
  virtual uint64_t bytes_completed() const = 0;
  virtual bool is_everything_flushed() const = 0;
  virtual uint64_t longest_gap_ns() const = 0;
  virtual std::string state_text() const = 0;

 protected:
  std::function<void()> inspect_;
};

}  // namespace traffic
