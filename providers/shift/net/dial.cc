#include "net/dial.h"

#include <cerrno>

#include "net/neighbours.h"
#include "net/proof.h"
#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

TcpDial::~TcpDial() {
  reactor_.timer_cancel(timer_);
  if (fd_) reactor_.remove_fd(fd_.get());
}

void TcpDial::start(uint32_t local_ip_be, uint32_t remote_ip_be, uint16_t port,
                    const wire::Hello& hello, std::chrono::milliseconds timeout) {
  hello_ = hello;
  port_ = port;
  local_ip_be_ = local_ip_be;
  remote_ip_be_ = remote_ip_be;
  deadline_ = Reactor::Clock::now() + timeout;
  if (hello.key != 0) {
    keys_.push_back(hello.key);
  } else {
    const auto& all = host_.secrets().key_ids();
    keys_.assign(all.rbegin(), all.rend());
  }
  attempt();
}

// Makes the Hello anew for the next key. False where a proof is needed and cannot be made.
bool TcpDial::sign() {
  const Secrets& secrets = host_.secrets();
  hello_.key = keys_.back();
  keys_.pop_back();
  hello_.tag = {};
  const bool is_random = random_fill(hello_.nonce.raw);
  if (secrets.has_keys()) {
    const SecretKey key = secrets.job_key(hello_.key);
    if (key.empty() || !is_random) return false;
    hello_.tag = hello_tag(signer(), hello_);
    return true;
  }
  if (!is_random) return false;
  if (hello_.target.is_zero()) {
    hello_.identity = secrets.identity().public_key();
    return true;
  }
  const PairKey* key = host_.pair_key(hello_.target);
  if (key == nullptr) return false;
  pair_key_ = *key;
  hello_.tag = hello_tag(signer(), hello_);
  return true;
}

// What the two ends make their tags with.
Signer TcpDial::signer() const {
  const Secrets& secrets = host_.secrets();
  if (secrets.has_keys()) return {secrets.job_key(hello_.key), {}};
  return {pair_key_, {local_ip_be_, remote_ip_be_}};
}

void TcpDial::attempt() {
  if (!sign()) return fail_later(DialError::kUnreachable);
  fd_ = tcp_connect(local_ip_be_, remote_ip_be_, Secrets::port_of(port_, hello_.key));
  if (!fd_) {
    // On the loopback device, connect() itself may report the refusal.
    const bool refused = errno == ECONNREFUSED;
    SHIFT_DEBUG("dial %s -> %s: %m", IpText(local_ip_be_).c_str(), IpText(remote_ip_be_).c_str());
    if (refused && !keys_.empty()) return attempt();
    return fail_later(refused ? DialError::kNobody : DialError::kUnreachable);
  }
  if (!reactor_.add_fd(fd_.get(), EPOLLOUT, [this](uint32_t) { on_connected(); })) {
    fd_.reset();
    return fail_later(DialError::kUnreachable);
  }
  timer_ = reactor_.timer_start(deadline_, [this] { finish(DialError::kUnreachable); });
}

// The callback runs from the loop, because it must not run inside the caller's call.
void TcpDial::fail_later(DialError error) {
  timer_ = reactor_.timer_start(Reactor::Clock::now(), [this, error] { finish(error); });
}

void TcpDial::on_connected() {
  reactor_.timer_cancel(std::exchange(timer_, 0));
  reactor_.remove_fd(fd_.get());
  if (const int error = socket_error(fd_.get()); error != 0) {
    fd_.reset();
    if (error == ECONNREFUSED && !keys_.empty()) return attempt();
    return finish(error == ECONNREFUSED ? DialError::kNobody : DialError::kUnreachable);
  }
  // Where the kernel chose the address of this end, the proofs need to know it.
  if (local_ip_be_ == 0 && !tcp_addresses(fd_.get(), local_ip_be_, remote_ip_be_)) {
    fd_.reset();
    return finish(DialError::kUnreachable);
  }
  // The kernel knows the neighbour's MAC address from here on, if it did not before.
  if (!host_.secrets().has_keys() && neighbour_contradicts(remote_ip_be_, hello_.want.gid)) {
    fd_.reset();
    return finish(DialError::kUnreachable);
  }
  std::vector<uint8_t> bytes;
  if (!wire::encode(hello_, bytes) || !send_whole(fd_.get(), bytes)) {
    fd_.reset();
    return finish(DialError::kUnreachable);
  }
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Reactor::Clock::now());
  reply_ = std::make_unique<FirstMessage>(reactor_, std::move(fd_));
  const bool started =
      reply_->start(left, [this](UniqueFd fd, const wire::Message* message, const char* why) {
        on_reply(std::move(fd), message, why);
      });
  if (!started) finish(DialError::kUnreachable);
}

// Whether the answer comes from the process that it names. Without a key, who says no proves
// nothing.
bool TcpDial::is_proved(const wire::HelloReply& reply) {
  const Secrets& secrets = host_.secrets();
  if (!secrets.has_keys()) {
    if (reply.status != wire::HelloStatus::kOk) return true;
    const PairKey* known = host_.pair_key(reply.instance);
    const auto key = known != nullptr ? std::optional(*known)
                                      : secrets.identity().pair_key(reply.identity, reply.instance);
    if (!key) return false;
    pair_key_ = *key;
  }
  return tag_fits(reply_tag(signer(), hello_, reply), reply.tag);
}

DialError TcpDial::judge(const wire::HelloReply& reply) {
  if (reply.want != hello_.want || reply.from != hello_.from || !is_proved(reply))
    return DialError::kUnreachable;
  switch (reply.status) {
    case wire::HelloStatus::kOk: {
      const bool fits = hello_.target.is_zero() || reply.instance == hello_.target;
      return fits && !reply.instance.is_zero() ? DialError::kNone : DialError::kUnreachable;
    }
    case wire::HelloStatus::kNoSuchQp:
      return DialError::kNoSuchQp;
    case wire::HelloStatus::kRefused:
      return DialError::kRefused;
  }
  return DialError::kUnreachable;
}

void TcpDial::on_reply(UniqueFd fd, const wire::Message* message, const char* why) {
  const auto* reply = message != nullptr ? std::get_if<wire::HelloReply>(message) : nullptr;
  DialError error = reply != nullptr ? judge(*reply) : DialError::kUnreachable;
  wire::Confirm confirm;
  std::vector<uint8_t> bytes;
  if (error == DialError::kNone) {
    confirm.tag = confirm_tag(signer(), hello_, *reply, confirm);
    if (!wire::encode(confirm, bytes) || !send_whole(fd.get(), bytes))
      error = DialError::kUnreachable;
  }
  if (error != DialError::kNone) {
    SHIFT_DEBUG("dial to %s: %s", IpText(remote_ip_be_).c_str(),
                why != nullptr ? why : "its answer is no, or does not fit");
    return finish(error);
  }
  finish(DialError::kNone,
         {std::move(fd), reply->instance, pair_key_, hello_.key, local_ip_be_, remote_ip_be_});
}

void TcpDial::finish(DialError error, Joining joining) {
  const Rendezvous::DialCallback callback = std::move(callback_);
  callback(error, std::move(joining));  // may destroy this
}

}  // namespace shift::net
