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
  // Remembers a message that was said.
  void hear(const wire::Message& message);
  // Has one message of each kind between these two QPs, in case that none was heard.
  void samples_make(const wire::QpName& from, const wire::QpName& to);
  void know(const wire::QpName& name);

  // How many bytes of the input one message takes.
  static constexpr size_t kScript = 16;
  // Follows the script. Nothing comes of it when the bytes are no message.
  std::optional<wire::Message> forge(Input script) const;

 private:
  using Bytes = std::vector<uint8_t>;

  const Bytes& base(Input& script) const;
  void change(Bytes& bytes, Input& script) const;

  std::deque<Bytes> heard_;     // the newest last
  std::vector<Bytes> samples_;  // in the order of the kinds
  std::vector<wire::QpName> names_;
};

}  // namespace shift::fuzz
