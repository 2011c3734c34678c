// The answering side of GID resolution.
#include "net/gid_answerer.h"

#include <vector>

#include "net/proof.h"
#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

GidAnswerer::~GidAnswerer() {
  if (fd_) reactor_.remove_fd(fd_.get());
}

void GidAnswerer::start() {
  const auto subnet = subnet_of(ip_be_);
  if (!subnet || (fd_ && subnet->mask_be == subnet_.mask_be)) return;
  if (fd_) reactor_.remove_fd(fd_.get());
  subnet_ = *subnet;
  fd_ = udp_hear_all(subnet->broadcast_be(), port_);
  if (fd_ && reactor_.add_fd(fd_.get(), EPOLLIN, [this](uint32_t) { on_readable(); })) return;
  SHIFT_DEBUG("%s: questions for GIDs are not heard: %m", IpText(ip_be_).c_str());
  fd_.reset();
}

void GidAnswerer::on_readable() {
  // The number of messages in one turn is bounded; those that are left wake the loop again.
  for (int i = 0; i < 16; i++)
    if (!answer_one()) break;
}

// Returns false when no message waits.
bool GidAnswerer::answer_one() {
  wire::Message message;
  UdpPeer asker;
  switch (udp_receive(fd_.get(), message, asker)) {
    case UdpResult::kNothing:
      return false;
    case UdpResult::kMalformed:
      return true;
    case UdpResult::kMessage:
      break;
  }
  const auto* query = std::get_if<wire::GidQuery>(&message);
  // Only hosts on the link get an answer: a forged sender address must not make this process send
  // to hosts elsewhere.
  if (query == nullptr || query->key != key_ || !subnet_.holds(asker.ip_be) ||
      !host_.has_gid(ip_be_, query->gid))
    return true;
  // When the answer gets lost, the asker asks again.
  wire::GidAnswer answer{query->nonce, query->gid, wire::Gid::from_ipv4(ip_be_), {}};
  if (key_ != 0) {
    const SecretKey key = host_.secrets().job_key(key_);
    if (!tag_fits(query_tag(key, *query), query->tag)) return true;
    answer.tag = answer_tag(key, answer);
  }
  (void)udp_send(fd_.get(), answer, asker);
  return true;
}

}  // namespace shift::net
