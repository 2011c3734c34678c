/* What a program in C finds in the header. */
#ifndef SHIFT_PLAIN_H
#define SHIFT_PLAIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The size of the struct that begins a message's body; 0 for a type that the header lacks. */
size_t plain_size(int type);
/* The epoch in the frame of a Progress. */
unsigned long plain_progress_epoch(const void* frame);

#ifdef __cplusplus
}
#endif

#endif
