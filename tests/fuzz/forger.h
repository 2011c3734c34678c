// Makes messages that are plausible: copies of what was said in the run, with other names, and with
// fields that are small numbers or come from other messages.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "tests/fuzz/targets.h"
#include "wire/messages.h"

namespace shift::fuzz {

class Forger {
 public:
  // Remembers a message that was said, and whom it names.
  void hear(const wire::Message& message);
  void know(const wire::QpName& name);

  // How many bytes of the input one message takes.
  static constexpr size_t kScript = 16;
  // Follows the script. Nothing comes of it when the bytes are no message, or when there is nothing
  // to copy yet.
  std::optional<wire::Message> forge(Input script) const;

 private:
  using Bytes = std::vector<uint8_t>;

  void change(Bytes& bytes, Input& script) const;

  std::deque<Bytes> heard_;  // the newest last
  std::vector<wire::QpName> names_;
};

}  // namespace shift::fuzz
