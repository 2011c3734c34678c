// Opens libshift-tls.so and calls it.
#include "net/tls_client.h"

#include <dlfcn.h>

#include "net/tls_plugin.h"

namespace shift::net {
namespace {

// The folder of the file that this code is in, with a slash at its end.
std::string own_folder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0) return {};
  const std::string name = info.dli_fname != nullptr ? info.dli_fname : "";
  return name.substr(0, name.rfind('/') + 1);
}

const shift_tls_interface* load(const std::string& file, std::string& why) {
  const char* problem = "it is of another version";
  // It stays open as long as the process lives: the last connection may end with the process.
  if (void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    using Get = const shift_tls_interface* (*)();
    const auto get = reinterpret_cast<Get>(dlsym(library, SHIFT_TLS_SYMBOL));
    const shift_tls_interface* const interface = get != nullptr ? get() : nullptr;
    if (interface != nullptr && interface->version == SHIFT_TLS_VERSION) return interface;
  } else {
    problem = dlerror();
  }
  why = "TLS needs " + file + ", which cannot be used: " + (problem != nullptr ? problem : "?");
  return nullptr;
}

}  // namespace

std::unique_ptr<TlsClient> TlsClient::open(const std::string& host, const std::string& ca_file,
                                           const std::string& plugin, std::string& why) {
  const std::string file = plugin.empty() ? own_folder() + SHIFT_TLS_FILE : plugin;
  if (!file.starts_with('/')) {
    why = "TLS needs " + file + ", whose folder is not known";
    return nullptr;
  }
  const shift_tls_interface* const interface = load(file, why);
  if (interface == nullptr) return nullptr;
  char error[256] = "";
  shift_tls* const tls = interface->open(host.c_str(), ca_file.empty() ? nullptr : ca_file.c_str(),
                                         error, sizeof error);
  if (tls != nullptr) return std::unique_ptr<TlsClient>(new TlsClient(*interface, tls));
  why = std::string("no TLS: ") + error;
  return nullptr;
}

TlsClient::~TlsClient() {
  interface_.close(tls_);
}

bool TlsClient::feed(std::span<const char> from_server) {
  return interface_.feed(tls_, from_server.data(), from_server.size()) == 0;
}

bool TlsClient::read(std::span<char> out, size_t& size) {
  const long n = interface_.read(tls_, out.data(), out.size());
  size = n > 0 ? static_cast<size_t>(n) : 0;
  return n >= 0;
}

bool TlsClient::write(std::string_view bytes) {
  return interface_.write(tls_, bytes.data(), bytes.size()) == 0;
}

std::string TlsClient::error() const {
  return std::string("TLS: ") + interface_.error(tls_);
}

size_t TlsClient::take_for_server(std::span<char> out) {
  return interface_.take(tls_, out.data(), out.size());
}

bool TlsClient::is_up() const {
  return interface_.is_up(tls_) != 0;
}

}  // namespace shift::net
