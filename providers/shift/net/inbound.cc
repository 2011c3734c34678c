// The answering side of handshakes.
#include "net/inbound.h"

#include "net/proof.h"
#include "net/socket.h"
#include "util/log.h"
#include "util/planted.h"

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
  if (!key.empty()) reply.tag = reply_tag({key, {}}, hello, reply);
  (void)reply_send(fd, reply);
}

// A further connection names no QP. Its asker is a process to which there is a channel.
bool Inbound::is_welcome(const wire::Hello& hello, uint32_t local_ip_be, uint32_t remote_ip_be) {
  if (hello.target.is_zero()) {
    if (!host_.expects(hello)) return false;
    if (host_.is_at(hello.from.gid, local_ip_be, remote_ip_be) || SHIFT_PLANT(address_not_asked))
      return true;
    (void)host_.look_up(hello.from.gid, [](Stored) {});  // the asker comes again
    return false;
  }
  if (hello.target != host_.own_instance()) return false;
  if (host_.secrets().has_keys()) return true;
  const PairKey* key = host_.pair_key(hello.instance);
  return key != nullptr &&
         tag_fits(hello_tag({*key, {remote_ip_be, local_ip_be}}, hello), hello.tag);
}

// False where the asker's instance is not its own.
bool Inbound::pair_key_find(Guest& guest) const {
  if (host_.secrets().has_keys()) return true;
  const wire::Hello& hello = guest.hello;
  if (const PairKey* known = host_.pair_key(hello.instance)) {
    guest.pair_key = *known;
    return true;
  }
  const auto made = host_.secrets().identity().pair_key(hello.identity, hello.instance);
  if (made) guest.pair_key = *made;
  return made.has_value();
}

// What the two ends make their tags with.
Signer Inbound::signer(const Guest& guest) const {
  const Secrets& secrets = host_.secrets();
  if (secrets.has_keys()) return {secrets.job_key(guest.hello.key), {}};
  return {guest.pair_key, {guest.remote_ip_be, guest.local_ip_be}};
}

void Inbound::take(UniqueFd fd, const wire::Hello& hello) {
  const Secrets& secrets = host_.secrets();
  Guest made{hello, {}, {}, 0, 0, nullptr, {}};
  if (hello.instance.is_zero() || !secrets.hello_fits(hello) ||
      !tcp_addresses(fd.get(), made.local_ip_be, made.remote_ip_be))
    return;
  if (!is_welcome(hello, made.local_ip_be, made.remote_ip_be))
    return hello_deny(fd.get(), hello, secrets);
  wire::HelloReply& reply = made.reply;
  if (!pair_key_find(made) || !random_fill(reply.nonce.raw)) return;
  reply.instance = host_.own_instance();
  if (!secrets.has_keys()) reply.identity = secrets.identity().public_key();
  reply.want = hello.want;
  reply.from = hello.from;
  reply.tag = reply_tag(signer(made), hello, reply);
  if (!reply_send(fd.get(), reply)) return;
  const uint32_t remote_ip_be = made.remote_ip_be;
  const auto guest = guests_.insert(guests_.end(), std::move(made));
  guest->seat = lobby_.sit(remote_ip_be, [this, guest] { guests_.erase(guest); });
  guest->confirm = std::make_unique<FirstMessage>(reactor_, std::move(fd));
  const bool started = guest->confirm->start(
      kConfirmTimeout, [this, guest](UniqueFd from, const wire::Message* message, const char* why) {
        on_confirm(guest, std::move(from), message, why);
      });
  if (!started) guests_.erase(guest);
}

void Inbound::on_confirm(Guests::iterator it, UniqueFd fd, const wire::Message* message,
                         const char* why) {
  Guests guest;  // it lives until its callback ends
  guest.splice(guest.end(), guests_, it);
  it->seat = {};
  const auto* confirm = message != nullptr ? std::get_if<wire::Confirm>(message) : nullptr;
  const bool is_proved =
      confirm != nullptr &&
      (tag_fits(confirm_tag(signer(*it), it->hello, it->reply, *confirm), confirm->tag) ||
       SHIFT_PLANT(proof_not_checked));
  if (!is_proved) {
    SHIFT_WARN_LIMITED("connection from %s closed: %s", IpText(it->remote_ip_be).c_str(),
                       why != nullptr       ? why
                       : confirm != nullptr ? "it does not prove which process it is"
                                            : "it does not answer");
    return;
  }
  host_.on_inbound({std::move(fd), it->hello.instance, it->pair_key, it->hello.key, it->local_ip_be,
                    it->remote_ip_be});
}

}  // namespace shift::net
