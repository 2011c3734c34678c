// `cxemu events` shows what happened to the NICs, from the fabric's log.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "fabric/event_log.h"
#include "host/cli/commands.h"
#include "host/cli/target.h"

namespace cxemu {
namespace {

void event_print(const FabricFile& fabric, const Event& event, bool as_json) {
  const std::string nic = nic_name(fabric, fabric.nic[event.nic % kMaxNics]);
  const bool qp = event.kind == EventKind::kQpError;
  if (as_json) {
    nlohmann::json shown = {{"number", event.number},
                            {"time", iso_text(event.time_ns)},
                            {"nic", nic},
                            {"kind", event_kind_name(event.kind)},
                            {"text", event.text},
                            {"pid", event.pid}};
    if (qp) {
      shown["qpn"] = event.qpn;
      shown["syndrome"] = event.syndrome;
    }
    printf("%s\n", shown.dump().c_str());
  } else {
    printf("%s %-12s %-10s %s", clock_text(event.time_ns).c_str(), nic.c_str(),
           event_kind_name(event.kind), event.text.c_str());
    if (qp) printf(", qpn %u syndrome 0x%02x pid %d", event.qpn, event.syndrome, event.pid);
    printf("\n");
  }
  fflush(stdout);
}

// While no process uses a flapping link, only this command logs its changes.
void flaps_settle(FabricFile& fabric) {
  for (FabricNic& nic : fabric.nic)
    if (nic.used.load(std::memory_order_acquire) != 0) flap_settle(fabric, nic, monotonic_ns());
}

}  // namespace

int events_run(const std::string& fabric_name, bool follow, bool as_json) {
  const Fabric fabric = fabric_open(fabric_name);
  uint64_t seen = 0;
  for (;;) {
    flaps_settle(*fabric);
    const uint64_t written = fabric->events.written.load(std::memory_order_acquire);
    if (written > seen + kEventsKept) {
      const uint64_t oldest = written - kEventsKept;
      if (seen != 0)
        fprintf(stderr, "cxemu: %llu events came too fast and are lost\n",
                static_cast<unsigned long long>(oldest - seen));
      seen = oldest;
    }
    Event event;
    while (seen < written) {
      if (event_read(*fabric, seen + 1, &event))
        event_print(*fabric, event, as_json);
      else if (seen + 1 == written)
        break;  // it is being written
      ++seen;
    }
    if (!follow) return 0;
    if (ferror(stdout) != 0) return 1;
    event_wait(*fabric, seen);
  }
}

}  // namespace cxemu
