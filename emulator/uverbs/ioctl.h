// Methods of the ioctl ABI that have no command behind them. Every other method is refused like in
// an older kernel: libibverbs then sends a command, or tells its caller.
#pragma once

#include <rdma/rdma_user_ioctl_cmds.h>

#include <cstdint>
#include <cstring>
#include <span>

#include "uverbs/context.h"

namespace cxemu {

// The attributes of one call.
class Attributes {
 public:
  explicit Attributes(std::span<ib_uverbs_attr> attributes) : attributes_(attributes) {}

  ib_uverbs_attr* find(uint16_t id) const;
  bool has(uint16_t id) const { return find(id) != nullptr; }
  // An attribute named memory that cannot be used.
  bool faulted() const { return faulted_; }
  // The bytes of an input: small ones travel inside the attribute.
  std::span<const uint8_t> input(uint16_t id) const;
  // Where an answer belongs that is the driver's; empty when nobody asked.
  std::span<uint8_t> output(uint16_t id) const;
  // Constants may come wider than they are. False: missing or of another size.
  template <typename T>
  [[nodiscard]] bool read(uint16_t id, T* to) const {
    const std::span<const uint8_t> from = input(id);
    if (from.size() < sizeof *to || from.size() > sizeof(uint64_t)) return false;
    memcpy(to, from.data(), sizeof *to);
    return true;
  }
  // An object that the caller names; nullptr when there is none.
  template <typename T>
  T* object(Context& context, uint16_t id) const {
    const ib_uverbs_attr* handle = find(id);
    return handle == nullptr || handle->data > UINT32_MAX
               ? nullptr
               : context.objects().find<T>(static_cast<uint32_t>(handle->data));
  }
  uint32_t handle(uint16_t id) const { return static_cast<uint32_t>(find(id)->data); }
  // Answers what the caller has room for, if it asked at all.
  template <typename T>
  void write(uint16_t id, const T& from) const {
    write_bytes(id, &from, sizeof from);
  }
  // A new handle or descriptor.
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
  std::span<const uint16_t> known;  // attributes; another one that is mandatory is refused
  uint16_t needed;                  // so many of `known`, from the first on, must be there
  int (*run)(Context&, const Attributes&);
  bool works_when_dead = false;
  bool works_in_child = false;  // of fork(), on the parent's device: needs no NIC
};

std::span<const Method> context_methods();
std::span<const Method> create_methods();
std::span<const Method> memory_methods();

// The call that `header` describes. 0 or an errno.
int method_run(Context&, const ib_uverbs_ioctl_hdr& header, std::span<ib_uverbs_attr>);

}  // namespace cxemu
