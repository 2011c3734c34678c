#include "net/secrets.h"

#include <sodium.h>

#include "net/socket.h"

namespace shift::net {

namespace {
constexpr uint16_t kKeyPorts = 1024;  // how many ports the keys spread over
}

Secrets::Secrets(std::unique_ptr<JobKeys> keys) : keys_(std::move(keys)) {
  for (int i = 0; keys_ != nullptr && i < keys_->count(); i++) ids_.push_back(keys_->id(i));
  if (keys_ == nullptr) ids_.push_back(0);
}

SecretKey Secrets::job_key(uint64_t id) const {
  if (keys_ == nullptr) return {};
  const auto index = keys_->find(id);
  return index ? SecretKey(keys_->secret(*index)) : SecretKey();
}

bool Secrets::hello_fits(const wire::Hello& hello) const {
  if (!has_keys()) return hello.key == 0;
  const SecretKey key = job_key(hello.key);
  return !key.empty() && tag_fits(hello_tag({key, {}}, hello), hello.tag);
}

uint16_t Secrets::port_of(uint16_t port, uint64_t key_id) {
  if (key_id == 0) return port;
  const auto step = static_cast<uint16_t>(1 + key_id % kKeyPorts);
  const bool fits = port + kKeyPorts <= UINT16_MAX;
  return static_cast<uint16_t>(fits ? port + step : port - step);
}

std::string Secrets::local_name(uint32_t ip_be, uint16_t port, uint64_t key_id) const {
  std::string name = IpText(ip_be).c_str() + ("/" + std::to_string(port));
  const SecretKey key = job_key(key_id);
  if (key.empty()) return name;
  const wire::Tag tag =
      bytes_tag(key, "local name", {reinterpret_cast<const uint8_t*>(name.data()), name.size()});
  char text[2 * sizeof tag.raw + 1];
  sodium_bin2hex(text, sizeof text, tag.raw.data(), tag.raw.size());
  return text;
}

}  // namespace shift::net
