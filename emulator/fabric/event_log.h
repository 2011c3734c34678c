// What happened to the NICs of a fabric, newest last. It is a ring in the fabric file, written by
// `cxemu fault`, scripts and every engine, and read by `cxemu events`.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace cxemu {

struct FabricFile;

enum class EventKind : uint16_t {
  kFault,      // a fault was set or ended; text: the words of `cxemu fault`
  kTriggered,  // a rule reached its n-th event and changed the NIC; text: the fault
  kRuleEnded,  // a rule affected as many events as it should; text: the rule
  kLink,       // a flapping link; text: "down" or "up"
  kQpError,    // a queue pair went to ERR by itself; qpn, syndrome
};
const char* event_kind_name(EventKind);

inline constexpr uint32_t kEventsKept = 1024;
inline constexpr size_t kEventText = 88;

// One slot of the ring.
struct FabricEvent {
  std::atomic<uint64_t> number;  // of the event in this slot, from 1; 0 while it is written
  std::array<std::atomic<uint64_t>, 3 + kEventText / 8> words;
};

struct EventRing {
  std::atomic<uint64_t> written;  // how many events were written so far
  std::atomic<uint32_t> futex;    // changes with every event
  FabricEvent event[kEventsKept];
};

struct Event {
  EventKind kind = EventKind::kFault;
  uint16_t nic = 0;  // index in FabricFile::nic
  uint32_t qpn = 0;
  uint64_t ago_ns = 0;  // how long before the call of event_log it happened
  uint32_t syndrome = 0;
  int32_t pid = 0;        // filled in by event_log
  std::string text = {};  // kEventText - 1 bytes are kept
  // event_read fills in these.
  uint64_t number = 0;
  uint64_t time_ns = 0;  // CLOCK_REALTIME
};

void event_log(FabricFile&, const Event&);
// Reads the event with this number; returns false if the ring no longer has it.
bool event_read(const FabricFile&, uint64_t number, Event*);
// Sleeps until more than `seen` events were written, or a signal comes.
void event_wait(const FabricFile&, uint64_t seen);

}  // namespace cxemu
