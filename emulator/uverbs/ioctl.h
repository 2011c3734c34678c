// Methods of the ioctl ABI that have no corresponding command. All other methods are refused as by
// an older kernel: libibverbs then sends a command, or returns an error to its caller.
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "uverbs/command_turn.h"
#include "uverbs/context.h"

namespace cxemu {

// The attributes of one call.
class Attributes {
 public:
  explicit Attributes(std::span<ib_uverbs_attr> attributes) : attributes_(attributes) {}

  ib_uverbs_attr* find(uint16_t id) const;
  bool has(uint16_t id) const { return find(id) != nullptr; }
  // Whether an attribute named memory that cannot be used.
  bool faulted() const { return faulted_; }
  // The bytes of an input: small inputs are inside the attribute.
  std::span<const uint8_t> input(uint16_t id) const;
  // Where an answer of the driver is to be written; empty if the caller does not ask for it.
  std::span<uint8_t> output(uint16_t id) const;
  // Constants may be wider than their type. Returns false if the attribute is missing or has
  // another size.
  template <typename T>
  [[nodiscard]] bool read(uint16_t id, T* to) const {
    const std::span<const uint8_t> from = input(id);
    if (from.size() < sizeof *to || from.size() > sizeof(uint64_t)) return false;
    memcpy(to, from.data(), sizeof *to);
    return true;
  }
  // An object that the caller names; nullptr if there is none.
  template <typename T>
  T* object(Context& context, uint16_t id) const {
    const ib_uverbs_attr* handle = find(id);
    return handle == nullptr || handle->data > UINT32_MAX
               ? nullptr
               : context.objects().find<T>(static_cast<uint32_t>(handle->data));
  }
  uint32_t handle(uint16_t id) const { return static_cast<uint32_t>(find(id)->data); }
  // Writes as much of the answer as the caller has room for, if it asked for it at all.
  template <typename T>
  void write(uint16_t id, const T& from) const {
    write_bytes(id, &from, sizeof from);
  }
  // Writes a new handle or descriptor.
  void write_new(uint16_t id, uint64_t value) const {
    if (ib_uverbs_attr* attribute = find(id)) attribute->data = value;
  }

 private:
  void write_bytes(uint16_t id, const void* from, size_t size) const;
  bool usable(uint64_t address, size_t length, bool writable) const;

  std::span<ib_uverbs_attr> attributes_;
  mutable bool faulted_ = false;
};

struct Method {
  uint16_t object, method;
  std::span<const uint16_t> known;  // attributes; any other attribute that is mandatory is refused
  uint16_t needed;                  // this many of `known`, from the first on, must be present
  int (*run)(Context&, const Attributes&);
  CommandTraits traits = kNoTraits;
};

std::span<const Method> context_methods();
std::span<const Method> create_methods();
std::span<const Method> gid_methods();
std::span<const Method> memory_methods();

// Runs the call that `header` describes. Returns 0 or an errno.
int method_run(Context&, const ib_uverbs_ioctl_hdr& header, std::span<ib_uverbs_attr>);

}  // namespace cxemu
