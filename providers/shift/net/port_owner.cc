// What the port owner of an address does.
#include "net/port_owner.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include "net/port_sharer.h"
#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

using namespace std::chrono_literals;

namespace {
constexpr std::chrono::milliseconds kHelloTimeout = 3s;
constexpr std::chrono::milliseconds kQuestionTimeout = 1s;
constexpr auto kAcceptPause = 100ms;  // when the process is out of descriptors or memory
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
  for (auto& [fd, sharer] : sharers_) reactor_.remove_fd(fd);
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
  // While the sharers are asked about too many connections, further ones wait in the kernel's
  // queue.
  for (size_t i = 0; i < kPendingMax && !is_full(); i++) {
    uint32_t remote_ip_be = 0;
    UniqueFd fd = tcp_accept(tcp_.get(), remote_ip_be);
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (is_out_of_resources(errno)) {
        accept_pause(true);
        accept_retry_ = reactor_.timer_start(kAcceptPause, [this] {
          accept_retry_ = 0;
          accept_pause(is_full());
        });
      }
      return;
    }
    if (greeting_.size() >= kPendingMax) make_room();
    greeting_.push_front({remote_ip_be, std::make_unique<FirstMessage>(reactor_, std::move(fd))});
    const auto it = greeting_.begin();
    const bool started = it->first->start(
        kHelloTimeout,
        [this, it, remote_ip_be](UniqueFd from, const wire::Message* message, const char* why) {
          const auto first = std::move(it->first);  // it lives until its callback ends
          greeting_.erase(it);
          on_hello(std::move(from), message, why, remote_ip_be);
        });
    if (!started) greeting_.erase(it);
  }
  accept_pause(is_full());
}

void PortOwner::make_room() {
  std::map<uint32_t, size_t> count;
  for (const Greeting& greeting : greeting_) count[greeting.remote_ip_be]++;
  const auto most = std::ranges::max_element(count, {}, [](const auto& one) { return one.second; });
  const auto oldest = std::find_if(greeting_.rbegin(), greeting_.rend(), [&](const Greeting& one) {
    return one.remote_ip_be == most->first;
  });
  greeting_.erase(std::next(oldest).base());
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
  else if (hello == nullptr || hello->instance.is_zero())
    SHIFT_WARN_LIMITED("connection from %s to %s:%u closed: %s", IpText(remote_ip_be).c_str(),
                       IpText(ip_be_).c_str(), unsigned{port_},
                       why != nullptr ? why : "it does not introduce itself");
  else
    find_process(std::move(fd), *hello);
  accept_pause(is_full());
}

void PortOwner::find_process(UniqueFd fd, const wire::Hello& hello) {
  if (!hello.target.is_zero()) {
    if (hello.target == host_.own_instance()) return inbound_take(host_, std::move(fd), hello);
    for (auto& [sharer_fd, sharer] : sharers_)
      if (sharer.instance == hello.target) return pass(sharer, std::move(fd), hello);
    (void)hello_answer(fd.get(), hello, {}, wire::HelloStatus::kNoSuchQp);
    return;
  }
  if (host_.expects(hello)) return inbound_take(host_, std::move(fd), hello);
  ask_sharers(std::move(fd), hello);
}

void PortOwner::ask_sharers(UniqueFd fd, const wire::Hello& hello) {
  const uint32_t id = next_question_++;
  LocalPacket packet;
  packet.kind = LocalKind::kAsk;
  packet.id = id;
  packet.hello = hello;
  std::vector<uint8_t> bytes;
  Question question;
  if (local_encode(packet, bytes))
    for (auto& [sharer_fd, sharer] : sharers_)
      // A sharer whose queue is full does not run, so it could not answer either.
      if (!sharer.instance.is_zero() && local_send(sharer_fd, bytes))
        question.open.insert(sharer_fd);
  question.fd = std::move(fd);
  question.hello = hello;
  const bool asked = !question.open.empty();
  if (asked)
    question.timer = reactor_.timer_start(kQuestionTimeout, [this, id] { question_deny(id); });
  questions_.emplace(id, std::move(question));
  if (!asked) question_deny(id);
}

void PortOwner::pass(Sharer& sharer, UniqueFd fd, const wire::Hello& hello) {
  LocalPacket packet;
  packet.kind = LocalKind::kPass;
  packet.hello = hello;
  std::vector<uint8_t> bytes;
  if (!local_encode(packet, bytes) || !local_send(sharer.fd.get(), bytes, fd.get()))
    (void)hello_answer(fd.get(), hello, {}, wire::HelloStatus::kNoSuchQp);
}

void PortOwner::question_deny(uint32_t id) {
  const auto node = questions_.extract(id);
  if (node.empty()) return;
  const Question& question = node.mapped();
  reactor_.timer_cancel(question.timer);
  (void)hello_answer(question.fd.get(), question.hello, {}, wire::HelloStatus::kNoSuchQp);
  accept_pause(is_full());
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
  if (!local_peer_trusted(fd.get())) {
    SHIFT_WARN_LIMITED("another user's process wants to share %s:%u: refused",
                       IpText(ip_be_).c_str(), unsigned{port_});
    return;
  }
  const int number = fd.get();
  if (reactor_.add_fd(number, EPOLLIN, [this, number](uint32_t) { on_member(number); }))
    sharers_[number].fd = std::move(fd);
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
  if (n <= 0 || !local_decode({buffer.data(), static_cast<size_t>(n)}, packet)) {
    member_drop(number);
    return false;
  }
  if (packet.kind == LocalKind::kRegister)
    sharer.instance = packet.hello.instance;
  else if (packet.kind == LocalKind::kAnswer)
    on_answer(number, packet.id, packet.yes);
  return true;
}

void PortOwner::member_drop(int fd) {
  reactor_.remove_fd(fd);
  sharers_.erase(fd);
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
    accept_pause(is_full());
  } else if (it->second.open.empty()) {
    question_deny(id);
  }
}

}  // namespace shift::net
