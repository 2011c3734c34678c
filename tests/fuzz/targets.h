// The fuzz targets of the layer. Each interprets the bytes in its own way, and aborts when
// something happens that must not.
#pragma once

#include <cstdint>
#include <span>

#include "emulator/fuzz/input.h"

namespace shift::fuzz {

// The codec of messages, and sealed frames.
void messages(std::span<const uint8_t> input);
// A byte stream that arrives in arbitrary pieces.
void framing(std::span<const uint8_t> input);
// Settings and files of job keys.
void config(std::span<const uint8_t> input);
// Strangers at the rendezvous port of a process, with and without job keys.
void first(std::span<const uint8_t> input);
// False sharers of a port, and a false owner of it.
void local(std::span<const uint8_t> input);
// What a redis server answers, and the entries that it holds of hosts.
void store(std::span<const uint8_t> input);
// Datagrams that ask who has a GID, or answer that question.
void udp(std::span<const uint8_t> input);
// Two coordinators in virtual time, and somebody who sends them forged messages.
void coordinator(std::span<const uint8_t> input);

using fuzzing::Input;
using fuzzing::require;

}  // namespace shift::fuzz
