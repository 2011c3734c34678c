#include "sim/stranger.h"

#include <algorithm>
#include <utility>

#include "wire/messages.h"

namespace shift::sim {

// What an end says and does on it must not help a stranger.
class Stranger::Channel final : public net::PeerChannel {
 public:
  Channel(const Fail& fail, bool is_near) : fail_(fail), is_near_(is_near) {}
  bool is_self() const noexcept override { return false; }
  bool is_at(uint32_t) const override { return is_near_; }
  size_t send(const wire::Message& message) override {
    // The one answer that all get who ask for QPs which are not theirs.
    if (!std::holds_alternative<wire::Refuse>(message)) {
      fail_(std::string("C11: a stranger is told ") + wire::message_name(message));
    }
    return 1;
  }
  bool keep_connection(uint32_t, uint32_t) override {
    fail_("C11: a stranger is dialed");
    return true;
  }
  void drop_connection(uint32_t, uint32_t) override {}

 private:
  const Fail& fail_;
  const bool is_near_;
};

Stranger::Stranger(std::vector<Forged> plan, Deliver deliver, Fail fail)
    : plan_(std::move(plan)), deliver_(std::move(deliver)), fail_(std::move(fail)) {
  for (int host = 0; host < 2; host++) {
    for (const bool is_near : {false, true})
      channels_.push_back(std::make_unique<Channel>(fail_, is_near));
  }
}

Stranger::~Stranger() = default;

void Stranger::heard(int host, const wire::Message& message) {
  auto& heard = heard_[static_cast<size_t>(host)];
  if (!wire::encode(message, heard.emplace_back())) return heard.pop_back();
  if (heard.size() > kHeardMax) heard.pop_front();
  count_++;
  for (const Forged& forged : plan_) {
    if (count_ < forged.before || count_ - forged.before >= forged.times) continue;
    say(forged);
  }
}

bool Stranger::forge(const Forged& forged, wire::Message& message) const {
  const auto& heard = heard_[static_cast<size_t>(forged.host)];
  if (heard.empty()) return false;
  auto bytes = heard[heard.size() - 1 - forged.heard % heard.size()];
  const size_t body = bytes.size() - wire::kHeaderSize;
  for (const auto& [at, with] : forged.changes) {
    if (body != 0) bytes[wire::kHeaderSize + at % body] ^= with;
  }
  if (!wire::decode(bytes, message)) return false;
  auto* bind = std::get_if<wire::Bind>(&message);
  if (bind != nullptr && forged.is_near) {
    // A process at the peer's address that knows the start PSNs too is the peer, without job keys.
    bind->flags |= wire::Bind::kHasSqPsn;
    bind->sq_psn |= 1u << 24;  // PSNs have 24 bits
  }
  return true;
}

void Stranger::say(const Forged& forged) {
  wire::Message message;
  if (!forge(forged, message)) return;
  const auto channel = static_cast<size_t>(2 * forged.host + (forged.is_near ? 1 : 0));
  deliver_(forged.host, channels_[channel].get(), message);
}

}  // namespace shift::sim
