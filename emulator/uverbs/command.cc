// Parses commands. The checks are those of the kernel's ib_uverbs_write and ib_uverbs_ioctl, in
// their order and with their errors.
#include "uverbs/command.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <cerrno>

#include "uverbs/ioctl.h"
#include "uverbs/memory_check.h"

namespace cxemu {
namespace {

constexpr uint32_t kExtended = IB_USER_VERBS_CMD_FLAG_EXTENDED;

// The application names the memory; the kernel refuses memory that it cannot read or write.
bool usable(std::span<const uint8_t> memory, bool writable) {
  return memory.empty() ||
         memory_check(reinterpret_cast<uint64_t>(memory.data()), memory.size(), writable) == 0;
}

int command_run(Context& context, const Command& command, const CommandIo& io) {
  if (io.driver_in.size() < command.driver_in) return EINVAL;
  if (io.driver_out.size() < command.driver_out) return ENOSPC;
  if (!usable(io.core_out, true) || !usable(io.driver_out, true)) return EFAULT;
  CommandTurn turn(context);
  if (const int error = turn.take(command.traits, command.number == IB_USER_VERBS_CMD_GET_CONTEXT))
    return error;
  return command.run(context, io);
}

// Memory that the application named by an address and a length.
std::span<uint8_t> user_memory(uint64_t address, size_t length) {
  return {reinterpret_cast<uint8_t*>(address), length};
}

int write_extended(Context& context, const Command& command, const ib_uverbs_cmd_hdr& header,
                   std::span<const uint8_t> rest) {
  ib_uverbs_ex_cmd_hdr extra;
  if (rest.size() < sizeof extra) return EINVAL;
  memcpy(&extra, rest.data(), sizeof extra);
  rest = rest.subspan(sizeof extra);
  const size_t core_in = size_t{header.in_words} * 8, driver_in = extra.provider_in_words * 8ul;
  const size_t core_out = size_t{header.out_words} * 8, driver_out = extra.provider_out_words * 8ul;
  if (core_in + driver_in != rest.size() || extra.cmd_hdr_reserved != 0) return EINVAL;
  if ((extra.response != 0) != (core_out + driver_out != 0)) return EINVAL;
  if (core_in < command.core_in || core_out < command.core_out) return ENOSPC;
  return command_run(context, command,
                     {.core_in = rest.first(core_in),
                      .driver_in = rest.subspan(core_in),
                      .core_out = user_memory(extra.response, core_out),
                      .driver_out = user_memory(extra.response + core_out, driver_out)});
}

int write_plain(Context& context, const Command& command, const ib_uverbs_cmd_hdr& header,
                std::span<const uint8_t> rest) {
  const size_t out = size_t{header.out_words} * 4;
  if (size_t{header.in_words} * 4 != rest.size() + sizeof header) return EINVAL;
  if (rest.size() < command.core_in || out < command.core_out) return ENOSPC;
  uint64_t response = 0;
  if (command.core_out != 0) {
    memcpy(&response, rest.data(), sizeof response);  // all commands with an answer begin with it
    if (response == 0) return EFAULT;
  } else if (out != 0) {
    return EINVAL;
  }
  return command_run(
      context, command,
      {.core_in = rest.first(command.core_in),
       .driver_in = rest.subspan(command.core_in),
       .core_out = user_memory(response, command.core_out),
       .driver_out = user_memory(response + command.core_out, out - command.core_out)});
}

// An attribute's input bytes: small inputs are inside the attribute.
std::span<const uint8_t> attribute_input(const ib_uverbs_attr& attribute) {
  if (attribute.len <= sizeof attribute.data)
    return {reinterpret_cast<const uint8_t*>(&attribute.data), attribute.len};
  return {reinterpret_cast<const uint8_t*>(attribute.data), attribute.len};
}

int invoke_write(Context& context, std::span<const ib_uverbs_attr> attributes) {
  CommandIo io;
  const ib_uverbs_attr* number = nullptr;
  for (const ib_uverbs_attr& attribute : attributes) {
    switch (attribute.attr_id) {
      case UVERBS_ATTR_WRITE_CMD:
        number = &attribute;
        break;
      case UVERBS_ATTR_CORE_IN:
        io.core_in = attribute_input(attribute);
        break;
      case UVERBS_ATTR_CORE_OUT:
        io.core_out = user_memory(attribute.data, attribute.len);
        break;
      case UVERBS_ATTR_UHW_IN:
        io.driver_in = attribute_input(attribute);
        break;
      case UVERBS_ATTR_UHW_OUT:
        io.driver_out = user_memory(attribute.data, attribute.len);
        break;
      default:
        if (attribute.flags & UVERBS_ATTR_F_MANDATORY) return EPROTONOSUPPORT;
    }
  }
  if (number == nullptr || number->len != sizeof(uint64_t)) return EINVAL;
  const Command* command = command_find(static_cast<uint32_t>(number->data));
  if (command == nullptr || number->data >> 32 != 0) return EOPNOTSUPP;
  if (io.core_in.size() < command->core_in || io.core_out.size() < command->core_out) return ENOSPC;
  if (!usable(io.core_in, false) || !usable(io.driver_in, false)) return EFAULT;
  return command_run(context, *command, io);
}

}  // namespace

const Command* command_find(uint32_t number) {
  for (const auto table : {device_commands(), memory_commands(), cq_commands(), srq_commands(),
                           xrc_commands(), qp_commands()})
    for (const Command& command : table)
      if (command.number == number) return &command;
  return nullptr;
}

int command_write(Context& context, const void* data, size_t length) {
  ib_uverbs_cmd_hdr header;
  if (length < sizeof header) return EINVAL;
  memcpy(&header, data, sizeof header);
  if (header.command & ~(kExtended | IB_USER_VERBS_CMD_COMMAND_MASK)) return EINVAL;
  const Command* command = command_find(header.command);
  if (command == nullptr) return EOPNOTSUPP;
  const std::span rest(static_cast<const uint8_t*>(data) + sizeof header, length - sizeof header);
  return header.command & kExtended ? write_extended(context, *command, header, rest)
                                    : write_plain(context, *command, header, rest);
}

int command_ioctl(Context& context, unsigned long request, void* argument) {
  if (request != RDMA_VERBS_IOCTL) return ENOTTY;
  auto* header = static_cast<ib_uverbs_ioctl_hdr*>(argument);
  if (header == nullptr) return EFAULT;
  if (header->length != sizeof *header + header->num_attrs * sizeof header->attrs[0]) return EINVAL;
  if (header->reserved1 != 0 || header->reserved2 != 0) return EPROTONOSUPPORT;
  const std::span<ib_uverbs_attr> attributes(header->attrs, header->num_attrs);
  if (header->object_id == UVERBS_OBJECT_DEVICE && header->method_id == UVERBS_METHOD_INVOKE_WRITE)
    return invoke_write(context, attributes);
  return method_run(context, *header, attributes);
}

}  // namespace cxemu
