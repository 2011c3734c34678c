// The answering side of GID resolution.
#include "net/gid_answerer.h"

#include <vector>

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
  // Bounded per turn; what is left wakes us again.
  for (int i = 0; i < 16; i++)
    if (!answer_one()) break;
}

// False when there is nothing more for now.
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
  // Those on the link only: nobody shall have us send anything to third parties far away.
  if (query == nullptr || !subnet_.holds(asker.ip_be) || !host_.has_gid(ip_be_, query->gid))
    return true;
  // What gets lost is asked for again.
  (void)udp_send(fd_.get(), wire::GidAnswer{query->nonce, query->gid, wire::Gid::from_ipv4(ip_be_)},
                 asker);
  return true;
}

}  // namespace shift::net
