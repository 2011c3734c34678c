// SHIFT_RENDEZVOUS: by what processes find each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace shift {

// A redis server that knows at which addresses hosts can be reached.
struct RedisServer {
  std::string host;  // a name, an IPv4 address, or an IPv6 address without its brackets
  uint16_t port = 0;
  std::string user, password;  // neither is ever shown
  bool tls = false;
  std::string ca_file;           // whom TLS trusts; empty: whom the system trusts
  std::string prefix = "shift";  // what the names of all keys begin with

  bool operator==(const RedisServer&) const = default;
  // "HOST:PORT", for log lines.
  std::string name() const;
};

struct RendezvousSetting {
  bool tcp = true;  // peers are looked for at the address that their GID holds
  std::optional<RedisServer> redis;

  bool operator==(const RendezvousSetting&) const = default;
};

// The form is a list with blanks between `tcp` and
// `redis://[[USER]:PASSWORD@]HOST:PORT[,tls][,ca=FILE][,prefix=NAME]`, each once at most. Where a
// character would end a part, %XX stands for it. The result is false, and `out` is as it was, when
// `text` is anything else.
bool rendezvous_parse(std::string_view text, RendezvousSetting& out);
// The same form, without what is secret.
std::string rendezvous_show(const RendezvousSetting& setting);

}  // namespace shift
