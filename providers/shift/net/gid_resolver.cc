// The asking side of GID resolution.
#include "net/gid_resolver.h"

#include <sys/random.h>

#include <algorithm>

#include "net/neighbours.h"
#include "net/proof.h"
#include "net/socket.h"
#include "util/log.h"

namespace shift::net {

GidResolver::~GidResolver() {
  for (auto& [key, question] : questions_) {
    reactor_.timer_cancel(question.timer);
    if (question.fd) reactor_.remove_fd(question.fd.get());
  }
}

std::optional<uint32_t> GidResolver::known(uint32_t local_ip_be, const wire::Gid& gid) const {
  const auto found = known_.find({local_ip_be, gid});
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void GidResolver::doubt(uint32_t local_ip_be, const wire::Gid& gid) {
  const Key key{local_ip_be, gid};
  const auto node = known_.extract(key);
  if (node.empty()) return;
  auto& doubted = doubted_[key];
  if (doubted.size() >= kDoubtedMax) doubted.clear();
  doubted.insert(node.mapped());
}

void GidResolver::ask(uint32_t local_ip_be, const wire::Gid& gid,
                      Rendezvous::AskCallback callback) {
  const Key key{local_ip_be, gid};
  const auto [it, is_new] = questions_.try_emplace(key);
  Question& question = it->second;
  question.waiting.push_back(std::move(callback));
  if (!is_new) return;
  // The timer also runs when nothing can be sent, so that the caller does not ask again at once.
  question.timer = reactor_.timer_start(answer_timeout_, [this, key] { end(key); });
  send(key, question);
}

void GidResolver::send(const Key& key, Question& question) {
  const auto subnet = subnet_of(key.first);
  if (!subnet) {
    SHIFT_DEBUG("%s is in no subnet: GID %s is not asked for", IpText(key.first).c_str(),
                GidText(key.second).c_str());
    return;
  }
  question.subnet = *subnet;
  // A host that answers must repeat the nonce, which proves that it heard the question. Without a
  // source of randomness, the nonce can be guessed and only tells answers apart.
  if (getrandom(&question.nonce, sizeof question.nonce, 0) != sizeof question.nonce)
    question.nonce = static_cast<uint64_t>(Reactor::Clock::now().time_since_epoch().count());
  question.fd = udp_speak_to_all(key.first);
  bool is_sent = false;
  for (const uint64_t job_key : secrets_.key_ids())
    is_sent = (question.fd && send_with(job_key, key.second, question)) || is_sent;
  if (!is_sent) {
    SHIFT_DEBUG("GID %s cannot be asked for from %s: %m", GidText(key.second).c_str(),
                IpText(key.first).c_str());
    question.fd.reset();
    return;
  }
  if (!reactor_.add_fd(question.fd.get(), EPOLLIN, [this, key](uint32_t) { on_readable(key); }))
    question.fd.reset();
}

bool GidResolver::send_with(uint64_t job_key, const wire::Gid& gid, const Question& question) {
  wire::GidQuery query{question.nonce, gid, job_key, {}};
  if (job_key != 0) query.tag = query_tag(secrets_.job_key(job_key), query);
  return udp_send(question.fd.get(), query,
                  {question.subnet.broadcast_be(), Secrets::port_of(port_, job_key)});
}

bool GidResolver::is_proved(const wire::GidAnswer& answer) const {
  return !secrets_.has_keys() || std::ranges::any_of(secrets_.key_ids(), [&](uint64_t job_key) {
    return tag_fits(answer_tag(secrets_.job_key(job_key), answer), answer.tag);
  });
}

void GidResolver::on_readable(const Key& key) {
  const auto it = questions_.find(key);
  if (it == questions_.end()) return;
  // The number of messages in one turn is bounded; those that are left wake the loop again.
  for (int i = 0; i < 16; i++) {
    wire::Message message;
    UdpPeer from;
    const UdpResult result = udp_receive(it->second.fd.get(), message, from);
    if (result == UdpResult::kNothing) return;
    const auto* answer = std::get_if<wire::GidAnswer>(&message);
    if (result == UdpResult::kMessage && answer != nullptr &&
        take(key, it->second, *answer, from.ip_be))
      return end(key);
  }
}

bool GidResolver::take(const Key& key, Question& question, const wire::GidAnswer& answer,
                       uint32_t from_be) {
  const auto ip = answer.address.ipv4();
  // Both the host that answers and the address that it names must be on the link: an answer must
  // not send this process elsewhere.
  if (answer.nonce != question.nonce || answer.gid != key.second || !ip || !is_proved(answer) ||
      !question.subnet.holds(*ip) || !question.subnet.holds(from_be) ||
      (!secrets_.has_keys() && neighbour_contradicts(*ip, key.second)))
    return false;
  const auto doubted = doubted_.find(key);
  if (doubted != doubted_.end() && doubted->second.contains(*ip)) {
    question.doubted = *ip;
    return false;
  }
  remember(key, *ip);
  return true;
}

void GidResolver::remember(const Key& key, uint32_t ip_be) {
  if (known_.size() >= kKnownMax) {
    known_.clear();
    doubted_.clear();
  }
  known_[key] = ip_be;
  SHIFT_DEBUG("GID %s is at %s", GidText(key.second).c_str(), IpText(ip_be).c_str());
}

void GidResolver::end(const Key& key) {
  auto node = questions_.extract(key);
  if (node.empty()) return;
  Question& question = node.mapped();
  reactor_.timer_cancel(question.timer);
  if (question.fd) reactor_.remove_fd(question.fd.get());
  if (!known_.contains(key) && question.doubted) {
    doubted_.erase(key);
    remember(key, *question.doubted);
  }
  const bool answered = known_.contains(key);
  for (const auto& callback : question.waiting) callback(answered);
}

}  // namespace shift::net
