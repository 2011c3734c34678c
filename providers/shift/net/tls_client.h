// TLS towards a server, by the plug-in libshift-tls.so, which is opened when it is first asked for.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct shift_tls;
struct shift_tls_interface;

namespace shift::net {

class TlsClient {
 public:
  // Returns nothing, and why, when there can be no TLS. `ca_file` may be empty: whom the system
  // trusts. `plugin` is the absolute name of the plug-in; empty: it lies beside the layer.
  static std::unique_ptr<TlsClient> open(const std::string& host, const std::string& ca_file,
                                         const std::string& plugin, std::string& why);
  ~TlsClient();
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  // These return false when the connection is over; error() says why.
  bool feed(std::span<const char> from_server);
  bool read(std::span<char> out, size_t& size);  // 0 bytes: more must come from the server first
  bool write(std::string_view bytes);
  std::string error() const;

  // Returns the number of bytes that are to go to the server.
  size_t take_for_server(std::span<char> out);
  // Whether the server has proved who it is.
  bool is_up() const;

 private:
  TlsClient(const shift_tls_interface& interface, shift_tls* tls)
      : interface_(interface), tls_(tls) {}

  const shift_tls_interface& interface_;
  shift_tls* const tls_;
};

}  // namespace shift::net
