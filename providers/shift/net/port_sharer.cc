// What a port sharer does.
#include "net/port_sharer.h"

#include <array>
#include <cerrno>

#include "net/proof.h"
#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

namespace {
constexpr std::chrono::milliseconds kWelcomeTimeout{1000};
}

PortSharer::~PortSharer() {
  leave();
}

void PortSharer::leave() {
  reactor_.timer_cancel(std::exchange(timer_, 0));
  if (owner_) reactor_.remove_fd(owner_.get());
  owner_.reset();
}

bool PortSharer::start(std::function<void()> lost) {
  lost_ = std::move(lost);
  if (!reactor_.add_fd(owner_.get(), EPOLLIN, [this](uint32_t) { on_readable(); })) return false;
  timer_ = reactor_.timer_start(kWelcomeTimeout, [this] {
    timer_ = 0;
    leave();
    const auto gone = std::move(lost_);
    gone();  // may destroy this
  });
  return true;
}

void PortSharer::on_readable() {
  // The number of packets in one turn is bounded; those that are left wake the loop again.
  for (int i = 0; i < 16; i++)
    if (!receive_one()) break;
  if (owner_) return;
  const auto lost = std::move(lost_);
  lost();  // may destroy this
}

// Returns false when no packet waits, or when the owner is gone.
bool PortSharer::receive_one() {
  std::array<uint8_t, kLocalPacketMax> buffer;
  UniqueFd passed;
  const ssize_t n = local_receive(owner_.get(), buffer, passed);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  LocalPacket packet;
  if (n > 0 && local_decode({buffer.data(), static_cast<size_t>(n)}, packet) &&
      take(packet, std::move(passed)))
    return true;
  leave();
  return false;
}

bool PortSharer::take(const LocalPacket& packet, UniqueFd passed) {
  const SecretKey key = host_.secrets().job_key(key_);
  switch (packet.kind) {
    case LocalKind::kChallenge:
      return !welcome_ && register_with(packet.hello.nonce);
    case LocalKind::kWelcome:
      if (key_ != 0 &&
          !tag_fits(welcome_tag(key, name_, challenge_, registered_), packet.hello.tag))
        return false;
      welcome_ = true;
      reactor_.timer_cancel(std::exchange(timer_, 0));
      return true;
    case LocalKind::kPass:
      if (welcome_ && passed) inbound_.take(std::move(passed), packet.hello);
      return welcome_;
    case LocalKind::kAsk: {
      if (!welcome_) return false;
      LocalPacket answer = packet;
      answer.kind = LocalKind::kAnswer;
      answer.yes = host_.expects(packet.hello);
      std::vector<uint8_t> bytes;
      // An owner that takes no answer is at its end, so a failure does not matter: the question
      // times out.
      if (local_encode(answer, bytes)) (void)local_send(owner_.get(), bytes);
      return true;
    }
    case LocalKind::kRegister:
    case LocalKind::kAnswer:
      break;
  }
  return false;
}

bool PortSharer::register_with(const wire::Nonce& challenge) {
  LocalPacket packet;
  packet.kind = LocalKind::kRegister;
  packet.hello.instance = host_.own_instance();
  if (!random_fill(packet.hello.nonce.raw) && key_ != 0) return false;
  challenge_ = challenge;
  registered_ = packet.hello;
  const SecretKey key = host_.secrets().job_key(key_);
  if (key_ != 0) packet.hello.tag = register_tag(key, name_, challenge, packet.hello);
  std::vector<uint8_t> bytes;
  return local_encode(packet, bytes) && local_send(owner_.get(), bytes);
}

}  // namespace shift::net
