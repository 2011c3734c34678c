// Finds and checks methods of the ioctl ABI.
#include "uverbs/ioctl.h"

#include <algorithm>
#include <cerrno>

#include "uverbs/memory_check.h"

namespace cxemu {

ib_uverbs_attr* Attributes::find(uint16_t id) const {
  const auto found = std::find_if(attributes_.begin(), attributes_.end(),
                                  [id](const ib_uverbs_attr& one) { return one.attr_id == id; });
  return found == attributes_.end() ? nullptr : &*found;
}

std::span<const uint8_t> Attributes::input(uint16_t id) const {
  const ib_uverbs_attr* attribute = find(id);
  if (attribute == nullptr) return {};
  const bool inside = attribute->len <= sizeof attribute->data;
  if (!inside && !usable(attribute->data, attribute->len, false)) return {};
  return {inside ? reinterpret_cast<const uint8_t*>(&attribute->data)
                 : reinterpret_cast<const uint8_t*>(attribute->data),
          attribute->len};
}

std::span<uint8_t> Attributes::output(uint16_t id) const {
  const ib_uverbs_attr* attribute = find(id);
  if (attribute == nullptr || !usable(attribute->data, attribute->len, true)) return {};
  return {reinterpret_cast<uint8_t*>(attribute->data), attribute->len};
}

void Attributes::write_bytes(uint16_t id, const void* from, size_t size) const {
  ib_uverbs_attr* attribute = find(id);
  if (attribute == nullptr || attribute->len == 0) return;
  const size_t length = std::min<size_t>(size, attribute->len);
  if (!usable(attribute->data, length, true)) return;
  memcpy(reinterpret_cast<void*>(attribute->data), from, length);
  attribute->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}

bool Attributes::usable(uint64_t address, size_t length, bool writable) const {
  const bool right = length == 0 || memory_check(address, length, writable) == 0;
  faulted_ |= !right;
  return right;
}

namespace {

const Method* method_find(uint16_t object, uint16_t method) {
  for (const auto table : {context_methods(), create_methods(), gid_methods(), memory_methods()})
    for (const Method& one : table)
      if (one.object == object && one.method == method) return &one;
  return nullptr;
}

int attributes_check(const Method& method, const Attributes& attributes,
                     std::span<const ib_uverbs_attr> all) {
  for (const ib_uverbs_attr& one : all) {
    const bool known =
        std::find(method.known.begin(), method.known.end(), one.attr_id) != method.known.end();
    if (!known && (one.flags & UVERBS_ATTR_F_MANDATORY) != 0) return EPROTONOSUPPORT;
  }
  for (const uint16_t id : method.known.first(method.needed))
    if (!attributes.has(id)) return EINVAL;
  return 0;
}

}  // namespace

int method_run(Context& context, const ib_uverbs_ioctl_hdr& header, std::span<ib_uverbs_attr> all) {
  const Method* method = method_find(header.object_id, header.method_id);
  if (method == nullptr) return EPROTONOSUPPORT;
  const Attributes attributes(all);
  if (const int error = attributes_check(*method, attributes, all)) return error;
  CommandTurn turn(context);
  if (const int refused = turn.take(method->traits, false)) return refused;
  const int error = method->run(context, attributes);
  return attributes.faulted() ? EFAULT : error;
}

}  // namespace cxemu
