/* Reads a frame as a program in C does, which has nothing but the header. */
#include <rdma/shift-wire.h>
/* It comes first, so that it must stand by itself. */
#include "test/plain.h"

size_t plain_size(int type) {
  switch ((enum shift_wire_type)type) {
    case SHIFT_WIRE_HELLO:
      return sizeof(struct shift_wire_hello);
    case SHIFT_WIRE_HELLO_REPLY:
      return sizeof(struct shift_wire_hello_reply);
    case SHIFT_WIRE_CONFIRM:
      return sizeof(struct shift_wire_confirm);
    case SHIFT_WIRE_BIND:
      return sizeof(struct shift_wire_bind);
    case SHIFT_WIRE_OFFER:
      return sizeof(struct shift_wire_offer);
    case SHIFT_WIRE_ACCEPT:
      return sizeof(struct shift_wire_accept);
    case SHIFT_WIRE_READY:
      return sizeof(struct shift_wire_ready);
    case SHIFT_WIRE_MEMBERS:
      return sizeof(struct shift_wire_members);
    case SHIFT_WIRE_DRAIN:
      return sizeof(struct shift_wire_drain);
    case SHIFT_WIRE_SWITCH:
      return sizeof(struct shift_wire_switch);
    case SHIFT_WIRE_PROGRESS:
      return sizeof(struct shift_wire_progress);
    case SHIFT_WIRE_KEY_QUERY:
      return sizeof(struct shift_wire_key_query);
    case SHIFT_WIRE_KEY_REPLY:
      return sizeof(struct shift_wire_key_reply);
    case SHIFT_WIRE_REFUSE:
      return sizeof(struct shift_wire_refuse);
    case SHIFT_WIRE_CLOSE:
      return sizeof(struct shift_wire_close);
    case SHIFT_WIRE_GID_QUERY:
      return sizeof(struct shift_wire_gid_query);
    case SHIFT_WIRE_GID_ANSWER:
      return sizeof(struct shift_wire_gid_answer);
    case SHIFT_WIRE_KEYS_GONE:
      return sizeof(struct shift_wire_keys_gone);
    case SHIFT_WIRE_KEYS_FORGOTTEN:
      return sizeof(struct shift_wire_keys_forgotten);
    case SHIFT_WIRE_AVOID:
      return sizeof(struct shift_wire_avoid);
    case SHIFT_WIRE_NICS:
      return sizeof(struct shift_wire_nics);
    case SHIFT_WIRE_PROBE:
      return sizeof(struct shift_wire_probe);
  }
  return 0;
}

unsigned long plain_progress_epoch(const void* frame) {
  const struct shift_wire_header* header = (const struct shift_wire_header*)frame;
  const struct shift_wire_progress* progress = (const struct shift_wire_progress*)(header + 1);
  const __u8* byte = (const __u8*)&progress->epoch;
  return byte[0] | (unsigned long)byte[1] << 8 | (unsigned long)byte[2] << 16 |
         (unsigned long)byte[3] << 24;
}
