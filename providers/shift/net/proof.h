// Tags: keyed hashes of what two processes said, which prove that their maker knows a key. The key
// is a job key or, without one, the key that the two processes share (C11).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "wire/messages.h"

namespace shift::net {

using SecretKey = std::span<const uint8_t>;  // 16 to 64 bytes

// The addresses of a handshake's ends, in network byte order.
struct Ends {
  uint32_t asker_ip_be = 0, answerer_ip_be = 0;
};

// What makes the tags of a handshake. Without a job key, tags cover the addresses, so that nobody
// can pass on as its own what another process has said. A process with a job key is believed
// anywhere, so there the addresses are zero. Any thread may use it.
struct Signer {
  SecretKey key;
  Ends ends;
};

// The tags of a handshake. Each covers all that was said before, but for its own place, which may
// hold anything. Without memory the tag is all zeros, which fits nothing.
wire::Tag hello_tag(const Signer& signer, wire::Hello hello);
wire::Tag reply_tag(const Signer& signer, const wire::Hello& hello, wire::HelloReply reply);
wire::Tag confirm_tag(const Signer& signer, const wire::Hello& hello, const wire::HelloReply& reply,
                      wire::Confirm confirm);
// The tags of datagrams.
wire::Tag query_tag(SecretKey key, wire::GidQuery query);
wire::Tag answer_tag(SecretKey key, wire::GidAnswer answer);
// The tag of any bytes; `purpose` keeps tags of different kinds apart.
wire::Tag bytes_tag(SecretKey key, std::string_view purpose, std::span<const uint8_t> bytes);

// Whether a tag that came is the one that was computed here. The time that this takes tells nothing
// about the tags.
bool tag_fits(const wire::Tag& computed, const wire::Tag& came);

}  // namespace shift::net
