// Where the header says that the fields of a frame lie, with the bytes that must stand there; and
// the judge that compares them with the codec's bytes.
#pragma once

#include <rdma/shift-wire.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "wire/messages.h"

namespace shift::header {

struct Field {
  std::string name;
  size_t at;  // in the frame
  std::vector<uint8_t> bytes;
};

// What is wrong with a frame; empty if each of its bytes is that of exactly one field. No code of
// the codec is used.
inline std::vector<std::string> judge(const std::vector<uint8_t>& frame,
                                      const std::vector<Field>& fields) {
  std::vector<std::string> complaints;
  std::vector<int> owners(frame.size());
  for (const Field& field : fields) {
    for (size_t i = 0; i < field.bytes.size(); i++) {
      const size_t at = field.at + i;
      if (at < frame.size()) owners[at]++;
      if (at < frame.size() && frame[at] == field.bytes[i]) continue;
      complaints.push_back(field.name + " is not at " + std::to_string(field.at));
      break;
    }
  }
  for (size_t at = 0; at < frame.size(); at++)
    if (owners[at] != 1)
      complaints.push_back("byte " + std::to_string(at) + " belongs to " +
                           std::to_string(owners[at]) + " fields");
  return complaints;
}

// Collects the fields of one frame. Each value gets random bytes when it is added, so that no other
// field has the same ones.
class Layout {
 public:
  explicit Layout(unsigned seed) : random_(seed) {}

  // The fields that are added from here on belong to a struct of this size, which follows the one
  // before.
  void begin(size_t size) {
    base_ = end_;
    end_ += size;
    parts_.push_back(size);
  }

  void add(const std::string& name, size_t at, size_t size, std::vector<uint8_t> bytes) {
    if (bytes.size() != size) wrong_.push_back(name + " has another size");
    fields_.push_back({name, base_ + at, std::move(bytes)});
  }
  template <typename T>
  requires std::is_integral_v<T>
  void fixed(const std::string& name, size_t at, size_t size, T value) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < size; i++)
      bytes.push_back(static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i)));
    add(name, at, size, std::move(bytes));
  }

  template <typename T>
  requires std::is_integral_v<T> || std::is_enum_v<T>
  void field(const std::string& name, size_t at, size_t size, T& value) {
    if (size != sizeof value) wrong_.push_back(name + " has another size");
    if constexpr (std::is_same_v<T, bool>) {
      value = true;
    } else {
      value = static_cast<T>(random_());
    }
    fixed(name, at, size, static_cast<uint64_t>(value));
  }
  template <size_t N>
  void field(const std::string& name, size_t at, size_t size, std::array<uint8_t, N>& value) {
    for (uint8_t& byte : value) byte = static_cast<uint8_t>(random_());
    add(name, at, size, {value.begin(), value.end()});
  }
  template <typename T>
  requires requires(T& value) { value.raw; }
  void field(const std::string& name, size_t at, size_t size, T& value) {
    field(name, at, size, value.raw);
  }
  // Members that are structs themselves.
  void field(const std::string& name, size_t at, size_t size, wire::QpName& value);
  void field(const std::string& name, size_t at, size_t size, wire::PathName& value);
  void field(const std::string& name, size_t at, size_t size, wire::QpAddress& value);

  const std::vector<Field>& fields() const { return fields_; }
  size_t size() const { return end_; }
  // The sizes of the structs that were begun.
  const std::vector<size_t>& parts() const { return parts_; }
  const std::vector<std::string>& wrong() const { return wrong_; }

 private:
  std::mt19937_64 random_;
  size_t base_ = 0, end_ = 0;
  std::vector<size_t> parts_;
  std::vector<Field> fields_;
  std::vector<std::string> wrong_;
};

// A field of a struct of the header, and the member of the message that it carries.
#define SHIFT_FIELD(layout, type, name, value) \
  (layout).field(#name, offsetof(type, name), sizeof(type::name), value)
// The same with a value that is known.
#define SHIFT_FIXED(layout, type, name, value) \
  (layout).fixed(#name, offsetof(type, name), sizeof(type::name), value)

inline void Layout::field(const std::string& name, size_t at, size_t size, wire::QpName& value) {
  if (size != sizeof(shift_wire_qp)) wrong_.push_back(name + " has another size");
  field(name + ".gid", at + offsetof(shift_wire_qp, gid), sizeof(shift_wire_qp::gid), value.gid);
  field(name + ".qpn", at + offsetof(shift_wire_qp, qpn), sizeof(shift_wire_qp::qpn), value.qpn);
}

inline void Layout::field(const std::string& name, size_t at, size_t size, wire::PathName& value) {
  using Path = shift_wire_path;
  if (size != sizeof(Path)) wrong_.push_back(name + " has another size");
  field(name + ".leader", at + offsetof(Path, leader), sizeof(Path::leader), value.leader);
  field(name + ".follower", at + offsetof(Path, follower), sizeof(Path::follower), value.follower);
}

inline void Layout::field(const std::string& name, size_t at, size_t size, wire::QpAddress& value) {
  using Address = shift_wire_address;
  if (size != sizeof(Address)) wrong_.push_back(name + " has another size");
  field(name + ".gid", at + offsetof(Address, gid), sizeof(Address::gid), value.gid);
  field(name + ".qpn", at + offsetof(Address, qpn), sizeof(Address::qpn), value.qpn);
  field(name + ".psn", at + offsetof(Address, psn), sizeof(Address::psn), value.psn);
  field(name + ".mtu", at + offsetof(Address, mtu), sizeof(Address::mtu), value.mtu);
}

}  // namespace shift::header
