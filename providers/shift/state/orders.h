// What an operator may send to a process's socket (directory.h): one datagram holds one order, a
// word and perhaps a QP, by its number and the device that it was made on: "move 0x1f mlx5_0". One
// word comes from other processes of the user: "suspect mlx5_0". Only the process's own user and
// root are heard. There is no answer: what the order changed shows in the process's state file.
#pragma once

#include <cstddef>

namespace shift::state {

inline constexpr size_t kOrderMax = 64;  // bytes
// Read the files of drained NICs again.
inline constexpr char kOrderLook[] = "look";
// With a QP: it shall leave the NIC that it uses, or need not keep away from any.
inline constexpr char kOrderMove[] = "move", kOrderHome[] = "home";
// With a device: another process of the user has found the NIC broken, by probes of its own. The
// process probes as well, and leaves the NIC if it finds the same.
inline constexpr char kOrderSuspect[] = "suspect";

}  // namespace shift::state
