// Builds commands as libibverbs writes them.
#pragma once

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>

#include <cstring>
#include <vector>

#include "uverbs/command.h"

namespace cxemu {

struct NoDriver {};

template <typename T>
std::vector<uint8_t> bytes_of(const T& value) {
  std::vector<uint8_t> bytes(sizeof value);
  memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
template <>
inline std::vector<uint8_t> bytes_of(const NoDriver&) {
  return {};
}

// Sends one command and collects its answer. `Out` and `DriverOut` must have no padding between
// them in memory, so the sender lays them out itself.
class Sender {
 public:
  explicit Sender(Context* context) : context_(context) {}

  template <typename In, typename Out, typename DriverIn = NoDriver, typename DriverOut = NoDriver>
  int plain(uint32_t number, In in, Out* out, const DriverIn& driver_in = {},
            DriverOut* driver_out = nullptr) {
    std::vector<uint8_t> answer(sizeof(Out) + (driver_out != nullptr ? sizeof *driver_out : 0));
    in.response = reinterpret_cast<uint64_t>(answer.data());
    const int error = write(number, bytes_of(in), bytes_of(driver_in), answer.size());
    if (error != 0) return error;
    memcpy(out, answer.data(), sizeof *out);
    if (driver_out != nullptr) memcpy(driver_out, answer.data() + sizeof *out, sizeof *driver_out);
    return 0;
  }
  // Sends a command without an answer.
  template <typename In>
  int plain(uint32_t number, const In& in) {
    return write(number, bytes_of(in), {}, 0);
  }
  template <typename In, typename Out, typename DriverIn = NoDriver>
  int extended(uint32_t number, const In& in, Out* out, const DriverIn& driver_in = {},
               size_t driver_out = 0) {
    std::vector<uint8_t> answer(sizeof(Out) + driver_out);
    const std::vector<uint8_t> core = bytes_of(in), driver = bytes_of(driver_in);
    ib_uverbs_cmd_hdr header{number | IB_USER_VERBS_CMD_FLAG_EXTENDED,
                             static_cast<uint16_t>(core.size() / 8),
                             static_cast<uint16_t>(sizeof(Out) / 8)};
    ib_uverbs_ex_cmd_hdr more{reinterpret_cast<uint64_t>(answer.data()),
                              static_cast<uint16_t>(driver.size() / 8),
                              static_cast<uint16_t>(driver_out / 8), 0};
    std::vector<uint8_t> all = bytes_of(header);
    for (const auto& part : {bytes_of(more), core, driver})
      all.insert(all.end(), part.begin(), part.end());
    const int error = command_write(*context_, all.data(), all.size());
    if (error == 0) memcpy(out, answer.data(), sizeof *out);
    return error;
  }
  int write(uint32_t number, const std::vector<uint8_t>& core, const std::vector<uint8_t>& driver,
            size_t answer_size) {
    ib_uverbs_cmd_hdr header{number, static_cast<uint16_t>((8 + core.size() + driver.size()) / 4),
                             static_cast<uint16_t>(answer_size / 4)};
    std::vector<uint8_t> all = bytes_of(header);
    for (const auto& part : {core, driver}) all.insert(all.end(), part.begin(), part.end());
    return command_write(*context_, all.data(), all.size());
  }

 private:
  Context* const context_;
};

}  // namespace cxemu
