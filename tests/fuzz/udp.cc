// Datagrams about GIDs. A well-formed question for a GID of this host is answered once, and nothing
// else is; and a process believes the first answer that repeats its number, and no other.
#include "net/gid_answerer.h"
#include "net/gid_resolver.h"
#include "tests/fuzz/net_ends.h"
#include "util/log.h"

namespace shift::fuzz {
namespace {

constexpr int kDatagramsMax = 16;

uint32_t everybody() {
  return htonl(0x7fffffff);
}

wire::Gid gid_of(uint8_t n) {
  wire::Gid gid;
  gid.raw = {0xfe, 0x80};
  gid.raw[15] = n;
  if (n == 3) gid.raw[0] = 0;  // no host has it
  return gid;
}

bool send_bytes(int fd, const Bytes& bytes, const net::UdpPeer& to) {
  struct sockaddr_in a = {};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = to.ip_be;
  a.sin_port = htons(to.port);
  return sendto(fd, bytes.data(), bytes.size(), MSG_DONTWAIT,
                reinterpret_cast<const struct sockaddr*>(&a), sizeof a) >= 0;
}

// Changes the datagram, or not. What was changed is malformed, or it is another message.
bool mangle(Bytes& bytes, Input& in) {
  const uint8_t how = in.below(8);
  if (how > 2) return false;
  if (how == 0) bytes.resize(in.take<uint8_t>());
  if (how == 1) bytes.push_back(in.take<uint8_t>());
  if (how == 2) bytes[in.take<uint8_t>() % bytes.size()] ^= static_cast<uint8_t>(1u << in.below(8));
  return true;
}

// What the bytes ask for, if they are a question that has to be answered.
std::optional<wire::GidQuery> question_in(const Bytes& bytes, uint64_t key) {
  wire::Message message;
  if (bytes.size() > 128 || !wire::decode(bytes, message)) return std::nullopt;
  const auto* query = std::get_if<wire::GidQuery>(&message);
  if (query == nullptr || query->gid.raw[0] != 0xfe || query->key != key) return std::nullopt;
  if (key != 0 && query->tag != net::query_tag(kRightKey, *query)) return std::nullopt;
  return *query;
}

void ask(net::Reactor& reactor, Input& in, bool keyed) {
  LoneProcess host(keyed);
  const uint64_t key = keyed ? host.secrets().key_ids()[0] : 0;
  net::GidAnswerer answerer(reactor, host, own_ip(1), own_port(), key);
  answerer.start();
  const UniqueFd asker = net::udp_speak_to_all(own_ip(2));
  require(static_cast<bool>(asker), "no socket");
  for (int i = 0; i < kDatagramsMax && !in.ended(); i++) {
    wire::GidQuery query{in.take<uint64_t>(), gid_of(in.below(4)), in.below(4) == 0 ? 5 : key, {}};
    const uint8_t sign = in.below(4);
    if (sign != 0) query.tag = net::query_tag(sign == 1 ? kWrongKey : kRightKey, query);
    Bytes bytes;
    require(wire::encode(query, bytes), "no memory");
    mangle(bytes, in);
    if (!send_bytes(asker.get(), bytes, {everybody(), own_port()})) continue;
    settle(reactor);
    const auto asked = question_in(bytes, key);
    wire::Message message;
    net::UdpPeer from;
    const bool answered = net::udp_receive(asker.get(), message, from) == net::UdpResult::kMessage;
    require(answered == asked.has_value(), "a question is answered wrongly, or not at all");
    if (!answered) continue;
    const auto* answer = std::get_if<wire::GidAnswer>(&message);
    require(answer != nullptr && answer->nonce == asked->nonce && answer->gid == asked->gid &&
                answer->address == wire::Gid::from_ipv4(own_ip(1)) &&
                (key == 0 || answer->tag == net::answer_tag(kRightKey, *answer)),
            "an answer says something else");
    require(net::udp_receive(asker.get(), message, from) == net::UdpResult::kNothing,
            "a question has two answers");
  }
}

void answer(net::Reactor& reactor, Input& in, bool keyed) {
  const net::Secrets secrets(job_keys(keyed));
  const uint64_t key = secrets.key_ids()[0];
  const UniqueFd stranger = net::udp_hear_all(everybody(), net::Secrets::port_of(own_port(), key));
  require(static_cast<bool>(stranger), "no socket");
  net::GidResolver resolver(reactor, secrets, own_port(), std::chrono::hours(1));
  int ended = 0;
  const wire::Gid gid = gid_of(1);
  resolver.ask(own_ip(1), gid, [&](bool) { ended++; });
  settle(reactor);
  wire::Message message;
  net::UdpPeer asker;
  if (net::udp_receive(stranger.get(), message, asker) != net::UdpResult::kMessage) return;
  const auto* query = std::get_if<wire::GidQuery>(&message);
  require(query != nullptr && query->gid == gid, "the question is not what it should be");
  const wire::GidQuery asked = *query;
  std::optional<uint32_t> right;
  const uint32_t addresses[] = {own_ip(3), own_ip(4), htonl(0x0a000001), everybody()};
  for (int i = 0; i < kDatagramsMax && !in.ended() && ended == 0; i++) {
    wire::GidAnswer said{asked.nonce, gid, wire::Gid::from_ipv4(addresses[in.below(4)]), {}};
    if (in.below(4) == 0) said.nonce ^= 1u << in.below(32);
    if (in.below(4) == 0) said.gid = gid_of(2);
    if (in.below(8) == 0) said.address.raw[0] = 1;
    const uint8_t sign = in.below(4);
    if (sign != 0) said.tag = net::answer_tag(sign == 1 ? kWrongKey : kRightKey, said);
    Bytes bytes;
    require(wire::encode(said, bytes), "no memory");
    mangle(bytes, in);
    wire::Message sent;
    const auto* seen = wire::decode(bytes, sent) ? std::get_if<wire::GidAnswer>(&sent) : nullptr;
    const bool fits = seen != nullptr && seen->nonce == asked.nonce && seen->gid == gid &&
                      seen->address.ipv4().has_value() &&
                      (ntohl(*seen->address.ipv4()) >> 24) == 127 &&
                      (!keyed || seen->tag == net::answer_tag(kRightKey, *seen));
    if (!send_bytes(stranger.get(), bytes, asker)) continue;
    if (fits && !right) right = seen->address.ipv4();
    settle(reactor);
    require(resolver.known(own_ip(1), gid) == right,
            "an answer is believed wrongly, or not at all");
    require(ended == (right ? 1 : 0), "a question ends wrongly");
  }
}

}  // namespace

void udp(std::span<const uint8_t> input) {
  static net::Reactor reactor;
  log_set_level(static_cast<LogLevel>(-1));
  Input in(input);
  const uint8_t form = in.below(4);
  if ((form & 1) != 0) {
    ask(reactor, in, (form & 2) != 0);
  } else {
    answer(reactor, in, (form & 2) != 0);
  }
  settle(reactor);
}

}  // namespace shift::fuzz
