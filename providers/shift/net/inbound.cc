// The answering side of handshakes.
#include "net/inbound.h"

#include "net/proof.h"
#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

namespace {

constexpr std::chrono::milliseconds kConfirmTimeout{3000};

bool reply_send(int fd, const wire::HelloReply& reply) {
  std::vector<uint8_t> bytes;
  return wire::encode(reply, bytes) && send_whole(fd, bytes);
}

}  // namespace

void hello_deny(int fd, const wire::Hello& hello, const Secrets& secrets) {
  wire::HelloReply reply;
  reply.want = hello.want;
  reply.from = hello.from;
  reply.status = wire::HelloStatus::kNoSuchQp;
  const SecretKey key = secrets.job_key(hello.key);
  if (!key.empty()) reply.tag = reply_tag(key, hello, reply);
  (void)reply_send(fd, reply);
}

// A further connection names no QP. Its asker knows the token that its process was told.
bool Inbound::is_welcome(const wire::Hello& hello, uint32_t local_ip_be, uint32_t remote_ip_be) {
  if (hello.target.is_zero())
    return host_.expects(hello) && host_.is_at(hello.from.gid, local_ip_be, remote_ip_be);
  if (hello.target != host_.own_instance()) return false;
  const Secrets& secrets = host_.secrets();
  if (secrets.has_keys()) return true;
  const wire::Token token = secrets.token_for(hello.instance);
  return !token.is_zero() && tag_fits(hello_tag(token.raw, hello), hello.tag);
}

// Without a key, who comes from the address of its QP needs no proof, unless it names a process
// that is known from other addresses: it might be another of this process's peers.
bool Inbound::has_to_prove(const wire::Hello& hello, uint32_t remote_ip_be) const {
  return host_.secrets().has_keys() || !hello.target.is_zero() ||
         host_.acquaintance(hello.instance, remote_ip_be) == Acquaintance::kElsewhere;
}

void Inbound::take(UniqueFd fd, const wire::Hello& hello) {
  const Secrets& secrets = host_.secrets();
  uint32_t local_ip_be = 0, remote_ip_be = 0;
  if (hello.instance.is_zero() || !secrets.hello_fits(hello) ||
      !tcp_addresses(fd.get(), local_ip_be, remote_ip_be))
    return;
  if (!is_welcome(hello, local_ip_be, remote_ip_be)) return hello_deny(fd.get(), hello, secrets);
  wire::HelloReply reply;
  if (!random_fill(reply.nonce.raw) && secrets.has_keys()) return;
  reply.instance = host_.own_instance();
  reply.want = hello.want;
  reply.from = hello.from;
  const bool proves = has_to_prove(hello, remote_ip_be);
  if (proves) reply.status = wire::HelloStatus::kProve;
  if (!proves) reply.token = secrets.token_for(hello.instance);
  const wire::Token shown = host_.peer_token(hello.instance);
  if (secrets.has_keys()) {
    reply.tag = reply_tag(secrets.job_key(hello.key), hello, reply);
  } else if (!shown.is_zero()) {
    reply.tag = reply_tag(shown.raw, hello, reply);
  }
  if (!reply_send(fd.get(), reply)) return;
  const auto guest = guests_.insert(guests_.end(), {hello, reply, local_ip_be, remote_ip_be});
  guest->seat = lobby_.sit(remote_ip_be, [this, guest] { guests_.erase(guest); });
  guest->confirm = std::make_unique<FirstMessage>(reactor_, std::move(fd));
  const bool started = guest->confirm->start(
      kConfirmTimeout, [this, guest](UniqueFd from, const wire::Message* message, const char* why) {
        on_confirm(guest, std::move(from), message, why);
      });
  if (!started) guests_.erase(guest);
}

bool Inbound::is_proved(const Guest& guest, const wire::Confirm& confirm) const {
  const Secrets& secrets = host_.secrets();
  // The process may have become known from another address since it was answered.
  if (!has_to_prove(guest.hello, guest.remote_ip_be)) return true;
  if (secrets.has_keys())
    return tag_fits(
        confirm_tag(secrets.job_key(guest.hello.key), guest.hello, guest.reply, confirm),
        confirm.tag);
  const wire::Token token = secrets.token_for(guest.hello.instance);
  return !token.is_zero() &&
         tag_fits(confirm_tag(token.raw, guest.hello, guest.reply, confirm), confirm.tag);
}

void Inbound::on_confirm(Guests::iterator it, UniqueFd fd, const wire::Message* message,
                         const char* why) {
  Guests guest;  // it lives until its callback ends
  guest.splice(guest.end(), guests_, it);
  it->seat = {};
  const auto* confirm = message != nullptr ? std::get_if<wire::Confirm>(message) : nullptr;
  if (confirm == nullptr || !is_proved(*it, *confirm)) {
    SHIFT_WARN_LIMITED("connection from %s closed: %s", IpText(it->remote_ip_be).c_str(),
                       why != nullptr       ? why
                       : confirm != nullptr ? "it does not prove which process it is"
                                            : "it does not answer");
    return;
  }
  host_.on_inbound({std::move(fd), it->hello.instance, confirm->token, it->hello.key,
                    it->local_ip_be, it->remote_ip_be});
}

}  // namespace shift::net
