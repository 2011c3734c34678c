// What a redis server says follows from its bytes alone and not from the pieces in which they come;
// it stays within the bounds, and no entry of a host has an address that no host can have.
#include <arpa/inet.h>

#include <algorithm>
#include <string>
#include <vector>

#include "net/host_entry.h"
#include "net/redis_codec.h"
#include "tests/fuzz/targets.h"

namespace shift::fuzz {
namespace {

using net::RedisReplies;
using net::RedisReply;

struct Said {
  std::vector<RedisReply> replies;
  bool is_nonsense = false;
};

void feed(RedisReplies& replies, std::span<const char> bytes, Said& said) {
  RedisReply reply;
  replies.feed(bytes);
  for (;;) {
    const auto next = replies.next(reply);
    said.is_nonsense = next == RedisReplies::Next::kNonsense;
    if (next != RedisReplies::Next::kReply) return;
    said.replies.push_back(reply);
  }
}

void check_entry(const std::string& line) {
  for (const bool on_loopback : {false, true}) {
    std::vector<uint32_t> ips;
    const auto kind = net::host_entry_parse(line, on_loopback, ips);
    const bool is_good = kind == net::HostEntry::kGood;
    require(is_good != ips.empty() && ips.size() <= net::kHostAddressesMax, "too many addresses");
    for (const uint32_t ip : ips) {
      const uint32_t first = ntohl(ip) >> 24;
      require(first != 0 && first < 224 && (first != 127 || on_loopback), "no host's address");
    }
    if (!is_good) continue;
    // Written anew, it holds the same addresses, in their order and once each.
    std::vector<uint32_t> again;
    require(net::host_entry_parse(net::host_entry_line(ips, on_loopback), on_loopback, again) ==
                    net::HostEntry::kGood &&
                std::ranges::all_of(
                    ips, [&](uint32_t ip) { return std::ranges::count(again, ip) == 1; }),
            "an address is lost");
  }
}

void check_reply(const RedisReply& reply) {
  require(reply.text.size() <= RedisReply::kTextMax && reply.list.size() <= RedisReply::kListMax,
          "a reply is too large");
  const std::string code = reply.error_code();
  require(!code.empty() && code.size() <= 20 &&
              std::ranges::none_of(code, [](char c) { return c < ' '; }),
          "the code of an error is no word");
  check_entry(reply.text);
  for (const std::string& text : reply.list) {
    require(text.size() <= RedisReply::kTextMax, "a text is too large");
    check_entry(text);
  }
}

}  // namespace

void store(std::span<const uint8_t> input) {
  Input in(input);
  const size_t piece = 1 + in.below(64);
  auto rest = in.rest();
  rest = rest.first(std::min(rest.size(), size_t{16384}));
  const std::span bytes(reinterpret_cast<const char*>(rest.data()), rest.size());
  check_entry(std::string(bytes.begin(), bytes.end()));
  RedisReplies whole, in_pieces;
  Said once, pieces;
  feed(whole, bytes, once);
  for (size_t at = 0; at < bytes.size() && !pieces.is_nonsense; at += piece)
    feed(in_pieces, bytes.subspan(at, std::min(piece, bytes.size() - at)), pieces);
  if (!net::redis_is_built()) return;
  require(once.replies.size() == pieces.replies.size() && once.is_nonsense == pieces.is_nonsense,
          "pieces make other replies");
  for (size_t i = 0; i < once.replies.size(); i++) {
    const RedisReply &a = once.replies[i], &b = pieces.replies[i];
    require(a.kind == b.kind && a.text == b.text && a.integer == b.integer && a.list == b.list,
            "pieces make another reply");
    check_reply(a);
  }
}

}  // namespace shift::fuzz
