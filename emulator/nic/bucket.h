// Booking capacity of a NIC. A bucket (fabric/shape.h) holds no tokens but a time: until when its
// capacity is given away. A process that wants to move bytes books them, which moves that time on,
// and may move them when the time before has come. So bookings are served in their order, nobody
// holds a lock or a turn, and a process that dies takes no more than what it had booked.
//
// Capacity that nobody books is lost, but for the last kShapeCredit bytes: so much may follow an
// idle time at once. A process that gets its core late makes up for it from this credit. More would
// let the NIC beat its rate.
#pragma once

#include <cstdint>

#include "fabric/shape.h"

namespace cxemu {

inline constexpr uint64_t kShapeCredit = 256 << 10;

// Books `bytes` at the bucket's rate; returns when they may be moved, which may be in the past.
uint64_t bucket_book(ShapeBucket&, uint64_t rate, uint64_t bytes, uint64_t now_ns);
// Gives back what was booked and is not needed.
void bucket_return(ShapeBucket&, uint64_t rate, uint64_t bytes);
// Until when this class must not book, because somebody waits in a higher one; 0: it may.
uint64_t bucket_yield_until_ns(const ShapeBucket&, int service_class, uint64_t now_ns);

}  // namespace cxemu
