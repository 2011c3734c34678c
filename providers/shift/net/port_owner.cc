// What the port owner of an address does.
#include "net/port_owner.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "net/proof.h"
#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

using namespace std::chrono_literals;

namespace {
constexpr std::chrono::milliseconds kHelloTimeout = 3s;
constexpr std::chrono::milliseconds kQuestionTimeout = 1s;
constexpr std::chrono::milliseconds kRegisterTimeout = 1s;
constexpr size_t kAcceptsPerTurn = 8;  // much less than there are places in the lobby
constexpr auto kAcceptPause = 100ms;   // when the process is out of descriptors or memory
constexpr auto kListenPauseMin = 2ms;
constexpr std::chrono::milliseconds kListenPauseMax = 5s;
constexpr int kListenWarnAfter = 9;  // about a second of doubling pauses

// After such an error of accept4(2), the waiting connection keeps the socket readable, so that the
// loop would spin without a pause.
bool is_out_of_resources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

}  // namespace

PortOwner::~PortOwner() {
  reactor_.timer_cancel(listen_retry_);
  reactor_.timer_cancel(accept_retry_);
  reactor_.timer_cancel(local_retry_);
  for (auto& [id, question] : questions_) reactor_.timer_cancel(question.timer);
  for (auto& [fd, sharer] : sharers_) {
    reactor_.timer_cancel(sharer.timer);
    reactor_.remove_fd(fd);
  }
  if (tcp_) reactor_.remove_fd(tcp_.get());
  if (local_) reactor_.remove_fd(local_.get());
}

bool PortOwner::start() {
  if (!reactor_.add_fd(local_.get(), EPOLLIN, [this](uint32_t) { accept_local(); })) return false;
  listen();
  return true;
}

// The TCP listener of the last owner may outlive its local socket by moments. A listener of a
// stranger may stay for good.
void PortOwner::listen() {
  listen_retry_ = 0;
  tcp_ = tcp_listen(ip_be_, port_);
  if (tcp_ && reactor_.add_fd(tcp_.get(), EPOLLIN, [this](uint32_t) { accept_tcp(); })) {
    accepting_ = true;
    SHIFT_DEBUG("serving rendezvous on %s:%u", IpText(ip_be_).c_str(), unsigned{port_});
    return;
  }
  if (++listen_failures_ == kListenWarnAfter)
    SHIFT_WARN("cannot listen on %s:%u: %m; peers will not find this host there",
               IpText(ip_be_).c_str(), unsigned{port_});
  tcp_.reset();
  const auto pause = std::min<std::chrono::milliseconds>(
      kListenPauseMin * (1 << std::min(listen_failures_, 12)), kListenPauseMax);
  listen_retry_ = reactor_.timer_start(pause, [this] { listen(); });
}

void PortOwner::accept_tcp() {
  for (size_t i = 0; i < kAcceptsPerTurn; i++) {
    uint32_t remote_ip_be = 0;
    UniqueFd fd = tcp_accept(tcp_.get(), remote_ip_be);
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (is_out_of_resources(errno)) {
        accept_pause(true);
        accept_retry_ = reactor_.timer_start(kAcceptPause, [this] {
          accept_retry_ = 0;
          accept_pause(false);
        });
      }
      return;
    }
    const auto it = greeting_.emplace(greeting_.end());
    it->seat = rooms_.lobby.sit(remote_ip_be, [this, it] { greeting_.erase(it); });
    it->first = std::make_unique<FirstMessage>(reactor_, std::move(fd));
    const bool started = it->first->start(
        kHelloTimeout,
        [this, it, remote_ip_be](UniqueFd from, const wire::Message* message, const char* why) {
          const auto first = std::move(it->first);  // it lives until its callback ends
          greeting_.erase(it);
          on_hello(std::move(from), message, why, remote_ip_be);
        });
    if (!started) {
      greeting_.erase(it);
      continue;
    }
    // In a flood, a Hello has come before its connection is accepted. It need not wait for the next
    // turn, in which others may need its place.
    it->first->read_now();
  }
}

void PortOwner::accept_pause(bool pause) {
  if (!tcp_ || accepting_ == !pause || (!pause && accept_retry_ != 0)) return;
  accepting_ = !pause;
  const uint32_t events = EPOLLIN;
  reactor_.modify_fd(tcp_.get(), pause ? 0 : events);
}

void PortOwner::on_hello(UniqueFd fd, const wire::Message* message, const char* why,
                         uint32_t remote_ip_be) {
  const auto* hello = message != nullptr ? std::get_if<wire::Hello>(message) : nullptr;
  if (message == nullptr && why == nullptr)
    SHIFT_DEBUG("%s asked whether somebody listens", IpText(remote_ip_be).c_str());
  else if (hello == nullptr || hello->instance.is_zero() || !host_.secrets().hello_fits(*hello))
    // (Who does not know the job key is told nothing.)
    SHIFT_WARN_LIMITED("connection from %s to %s:%u closed: %s", IpText(remote_ip_be).c_str(),
                       IpText(ip_be_).c_str(), unsigned{port_},
                       why != nullptr ? why
                       : hello == nullptr || hello->instance.is_zero()
                           ? "it does not introduce itself"
                           : "its job key is another");
  else
    find_process(std::move(fd), *hello, remote_ip_be);
}

void PortOwner::find_process(UniqueFd fd, const wire::Hello& hello, uint32_t remote_ip_be) {
  if (!hello.target.is_zero()) {
    if (hello.target == host_.own_instance()) return rooms_.inbound.take(std::move(fd), hello);
    for (auto& [sharer_fd, sharer] : sharers_)
      if (sharer.instance == hello.target) return pass(sharer, std::move(fd), hello);
    return hello_deny(fd.get(), hello, host_.secrets());
  }
  if (host_.expects(hello)) return rooms_.inbound.take(std::move(fd), hello);
  // No sharer takes a connection from another address than that of the asker's QP. It may have
  // asked a store, though, whether the asker's host has that address, too.
  if (hello.from.gid.ipv4() && !host_.has_store() &&
      !host_.is_at(hello.from.gid, ip_be_, remote_ip_be))
    return hello_deny(fd.get(), hello, host_.secrets());
  ask_sharers(std::move(fd), hello, remote_ip_be);
}

void PortOwner::ask_sharers(UniqueFd fd, const wire::Hello& hello, uint32_t remote_ip_be) {
  const uint32_t id = next_question_++;
  LocalPacket packet;
  packet.kind = LocalKind::kAsk;
  packet.id = id;
  packet.hello = hello;
  std::vector<uint8_t> bytes;
  Question& question = questions_[id];
  question.fd = std::move(fd);
  question.hello = hello;
  question.seat = rooms_.lobby.sit(remote_ip_be, [this, id] { question_deny(id); });
  if (local_encode(packet, bytes))
    for (auto& [sharer_fd, sharer] : sharers_)
      // A sharer whose queue is full does not run, so it could not answer either.
      if (!sharer.instance.is_zero() && local_send(sharer_fd, bytes))
        question.open.insert(sharer_fd);
  if (question.open.empty()) return question_deny(id);
  question.timer = reactor_.timer_start(kQuestionTimeout, [this, id] { question_deny(id); });
}

void PortOwner::pass(Sharer& sharer, UniqueFd fd, const wire::Hello& hello) {
  LocalPacket packet;
  packet.kind = LocalKind::kPass;
  packet.hello = hello;
  std::vector<uint8_t> bytes;
  if (!local_encode(packet, bytes) || !local_send(sharer.fd.get(), bytes, fd.get()))
    hello_deny(fd.get(), hello, host_.secrets());
}

void PortOwner::question_deny(uint32_t id) {
  const auto node = questions_.extract(id);
  if (node.empty()) return;
  const Question& question = node.mapped();
  reactor_.timer_cancel(question.timer);
  hello_deny(question.fd.get(), question.hello, host_.secrets());
}

void PortOwner::accept_local() {
  UniqueFd fd = local_accept(local_.get());
  if (!fd) {
    if (!is_out_of_resources(errno)) return;
    reactor_.modify_fd(local_.get(), 0);
    local_retry_ = reactor_.timer_start(kAcceptPause, [this] {
      local_retry_ = 0;
      reactor_.modify_fd(local_.get(), EPOLLIN);
    });
    return;
  }
  // A process that knows the job key is trusted; without a key, one of the same user is.
  if (key_ == 0 && !local_peer_trusted(fd.get())) {
    SHIFT_WARN_LIMITED("another user's process wants to share %s:%u: refused",
                       IpText(ip_be_).c_str(), unsigned{port_});
    return;
  }
  const int number = fd.get();
  LocalPacket packet;
  packet.kind = LocalKind::kChallenge;
  std::vector<uint8_t> bytes;
  if ((!random_fill(packet.hello.nonce.raw) && key_ != 0) || !local_encode(packet, bytes) ||
      !local_send(number, bytes) ||
      !reactor_.add_fd(number, EPOLLIN, [this, number](uint32_t) { on_member(number); }))
    return;
  Lobby::Seat seat =
      rooms_.local_lobby.sit(local_peer_user(number), [this, number] { member_drop(number); });
  Sharer& sharer = sharers_[number];
  sharer.fd = std::move(fd);
  sharer.challenge = packet.hello.nonce;
  sharer.seat = std::move(seat);
  sharer.timer = reactor_.timer_start(kRegisterTimeout, [this, number] { member_drop(number); });
}

void PortOwner::on_member(int fd) {
  for (int i = 0; i < 16; i++) {
    const auto it = sharers_.find(fd);
    if (it == sharers_.end() || !sharer_receive(it->second)) return;
  }
}

// Returns false when no packet waits, or when the sharer is gone.
bool PortOwner::sharer_receive(Sharer& sharer) {
  const int number = sharer.fd.get();
  std::array<uint8_t, kLocalPacketMax> buffer;
  UniqueFd passed;
  const ssize_t n = local_receive(number, buffer, passed);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  LocalPacket packet;
  const bool is_understood = n > 0 && local_decode({buffer.data(), static_cast<size_t>(n)}, packet);
  const bool is_registered = !sharer.instance.is_zero();
  if (is_understood && packet.kind == LocalKind::kAnswer && is_registered) {
    on_answer(number, packet.id, packet.yes);
    return true;
  }
  if (is_understood && packet.kind == LocalKind::kRegister && !is_registered &&
      sharer_register(sharer, packet.hello))
    return true;
  member_drop(number);
  return false;
}

bool PortOwner::sharer_register(Sharer& sharer, const wire::Hello& hello) {
  const SecretKey key = host_.secrets().job_key(key_);
  if (hello.instance.is_zero()) return false;
  LocalPacket welcome;
  welcome.kind = LocalKind::kWelcome;
  if (key_ != 0) {
    const std::string name = host_.secrets().local_name(ip_be_, port_, key_);
    if (!tag_fits(register_tag(key, name, sharer.challenge, hello), hello.tag)) return false;
    welcome.hello.tag = welcome_tag(key, name, sharer.challenge, hello);
  }
  std::vector<uint8_t> bytes;
  if (!local_encode(welcome, bytes) || !local_send(sharer.fd.get(), bytes)) return false;
  sharer.instance = hello.instance;
  sharer.seat = {};
  reactor_.timer_cancel(std::exchange(sharer.timer, 0));
  return true;
}

void PortOwner::member_drop(int fd) {
  const auto sharer = sharers_.extract(fd);
  if (sharer.empty()) return;
  reactor_.timer_cancel(sharer.mapped().timer);
  reactor_.remove_fd(fd);
  std::vector<uint32_t> unanswered;
  for (auto& [id, question] : questions_)
    if (question.open.erase(fd) != 0 && question.open.empty()) unanswered.push_back(id);
  for (uint32_t id : unanswered) question_deny(id);
}

void PortOwner::on_answer(int sharer_fd, uint32_t id, bool yes) {
  const auto it = questions_.find(id);
  if (it == questions_.end() || it->second.open.erase(sharer_fd) == 0) return;
  if (yes) {
    auto node = questions_.extract(it);
    Question& question = node.mapped();
    reactor_.timer_cancel(question.timer);
    pass(sharers_.at(sharer_fd), std::move(question.fd), question.hello);
  } else if (it->second.open.empty()) {
    question_deny(id);
  }
}

}  // namespace shift::net
