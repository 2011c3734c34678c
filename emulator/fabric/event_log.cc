// The event ring. Writers number their events and fill the slot of that number; a reader accepts a
// slot only if its number was the same before and after the copy.
#include "fabric/event_log.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "fabric/fabric.h"

namespace cxemu {
namespace {

struct Stored {
  uint64_t time_ns;
  EventKind kind;
  uint16_t nic;
  uint32_t qpn;
  uint32_t syndrome;
  int32_t pid;
  char text[kEventText];
};
static_assert(sizeof(Stored) == sizeof(FabricEvent::words));

uint64_t realtime_ns() {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

const char* event_kind_name(EventKind kind) {
  switch (kind) {
    case EventKind::kFault:
      return "fault";
    case EventKind::kTriggered:
      return "triggered";
    case EventKind::kRuleEnded:
      return "rule-ended";
    case EventKind::kLink:
      return "link";
    case EventKind::kQpError:
      return "qp-error";
  }
  return "unknown";
}

void event_log(FabricFile& fabric, const Event& event) {
  Stored stored = {.time_ns = realtime_ns() - event.ago_ns,
                   .kind = event.kind,
                   .nic = event.nic,
                   .qpn = event.qpn,
                   .syndrome = event.syndrome,
                   .pid = getpid(),
                   .text = {}};
  memcpy(stored.text, event.text.data(), std::min(event.text.size(), kEventText - 1));
  uint64_t words[sizeof(Stored) / 8];
  memcpy(words, &stored, sizeof words);

  EventRing& ring = fabric.events;
  const uint64_t number = ring.written.fetch_add(1, std::memory_order_acq_rel) + 1;
  FabricEvent& place = ring.event[(number - 1) % kEventsKept];
  place.number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 0; i < place.words.size(); ++i)
    place.words[i].store(words[i], std::memory_order_relaxed);
  place.number.store(number, std::memory_order_release);
  ring.futex.fetch_add(1, std::memory_order_acq_rel);
  syscall(SYS_futex, &ring.futex, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool event_read(const FabricFile& fabric, uint64_t number, Event* event) {
  const FabricEvent& place = fabric.events.event[(number - 1) % kEventsKept];
  if (number == 0 || place.number.load(std::memory_order_acquire) != number) return false;
  uint64_t words[sizeof(Stored) / 8];
  for (size_t i = 0; i < place.words.size(); ++i)
    words[i] = place.words[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (place.number.load(std::memory_order_relaxed) != number) return false;
  Stored stored;
  memcpy(&stored, words, sizeof words);
  stored.text[kEventText - 1] = '\0';
  *event = {.kind = stored.kind,
            .nic = stored.nic,
            .qpn = stored.qpn,
            .ago_ns = 0,
            .syndrome = stored.syndrome,
            .pid = stored.pid,
            .text = stored.text,
            .number = number,
            .time_ns = stored.time_ns};
  return true;
}

void event_wait(const FabricFile& fabric, uint64_t seen) {
  const EventRing& ring = fabric.events;
  const uint32_t value = ring.futex.load(std::memory_order_acquire);
  // Check the number first, then the slot, and sleep on the futex value read before both: an event
  // whose slot is not filled yet will still change the futex.
  Event unused;
  if (ring.written.load(std::memory_order_acquire) > seen && event_read(fabric, seen + 1, &unused))
    return;
  // No process is woken by a flapping link, so the reader wakes from time to time to look for
  // changes that are due.
  const timespec patience = {0, 20'000'000};
  syscall(SYS_futex, &ring.futex, FUTEX_WAIT, value, &patience, nullptr, 0);
}

}  // namespace cxemu
