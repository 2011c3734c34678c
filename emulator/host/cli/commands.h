// The commands of the cxemu program. Each returns the exit status; a failure throws
// std::runtime_error with a one-line text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/place.h"

namespace cxemu {

struct ExecOptions {
  std::string fabric, host;
  int nics = 0;          // 0: not given
  std::string wire;      // unix, udp, or empty: not given
  std::string topology;  // a file; empty: not given
  std::vector<std::string> command;
};

// The library that exec preloads. Throws when it is not found.
std::string library_path();
// The path by which the library can be preloaded: its own, or that of a link made in `folder`.
// Throws when neither works.
std::string preloadable(const std::string& library, const std::string& folder);
// The value of LD_PRELOAD with this library; inherited libraries follow it.
std::string preload_list(const std::string& library);

int exec_run(const ExecOptions&);  // returns only when it fails
int env_run(const ExecOptions&);
int fault_run(const std::string& fabric, const std::string& target,
              const std::vector<std::string>& faults, uint32_t seed);
int nic_run(const std::string& fabric, const std::string& target,
            const std::vector<std::string>& words);
std::vector<PlacedNic> topology_read(const std::string& path);
// Puts the NICs of a host where the topology says. Throws when processes run.
void topology_set(const std::string& fabric_name, const Fabric&, int host,
                  const std::vector<PlacedNic>&);
int calibrate_run(int nics, double seconds, bool json);

struct CaptureOptions {
  std::string fabric, out;
  std::vector<std::string> nics;     // HOST/DEVICE; empty: all
  std::vector<std::string> command;  // empty: until SIGINT or SIGTERM
};

int capture_run(const CaptureOptions&);
int list_run(const std::string& fabric, bool json);
int script_run(const std::string& fabric, const std::string& path, uint32_t seed, bool json);
int events_run(const std::string& fabric, bool follow, bool json);
// `program`: also say whether this program can run emulated; may be empty.
int doctor_run(const std::string& program, bool json);
int clean_run(const std::string& fabric, bool all);

}  // namespace cxemu
