// Says at which end a fault lies, by which ways between NICs carry probes and which do not. Pure
// (docs/decisions/0036-localisation.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace shift::control {

// What a probe has shown of a way.
enum class Trial : uint8_t {
  kNone,  // nothing: the way was never seen to work, or there is no answer, or it came late
  kPassed,
  kFailed,
};

// The ways on which a fault between NIC i here and NIC k of the peer shows. Each of the two has a
// neighbour in its device group.
enum class Way : uint8_t {
  kDirect,   // P0: i to k
  kOwn,      // P1: i to its neighbour
  kPeers,    // P2: k to its neighbour, by the peer's word
  kInward,   // P3: i's neighbour to k
  kOutward,  // P4: i to k's neighbour
};
inline constexpr size_t kWays = 5;

struct Trials {
  std::array<Trial, kWays> of{};
  Trial& operator[](Way way) { return of[static_cast<size_t>(way)]; }
  Trial operator[](Way way) const { return of[static_cast<size_t>(way)]; }
};

// Where a fault lies: in a NIC, its cable or its port, or only on the path between the two NICs.
enum class Place : uint8_t { kUnknown, kLocal, kRemote, kPath };
constexpr const char* to_string(Place place) {
  switch (place) {
    case Place::kUnknown:
      break;
    case Place::kLocal:
      return "local";
    case Place::kRemote:
      return "remote";
    case Place::kPath:
      return "path";
  }
  return "unknown";
}

// Unknown, unless the trials leave no other place for a single fault. What the peer says can make a
// place unknown, but never the local one.
Place place_of(const Trials& trials);

// Whether the peer's word may still decide something.
bool is_word_wanted(const Trials& trials);

// The trials for people, such as "A0-B0 fails, A0-A1 fails, A1-B0 passes": A stands for this end
// and B for the peer, and the numbers are the NICs' places. `own` and `peer` hold the place of the
// NIC and that of its neighbour.
struct Places {
  int nic = 0, neighbour = 0;
};
std::string trials_text(const Trials& trials, Places own, Places peer);

}  // namespace shift::control
