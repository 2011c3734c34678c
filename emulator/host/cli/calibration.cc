// Keeps what was measured, in the folder of all fabrics.
#include "host/cli/calibration.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "fabric/paths.h"

namespace cxemu {
namespace {

// A point is in no fabric's name.
std::string calibration_file() {
  return fabrics_dir() + "/machine.rate";
}

}  // namespace

uint64_t calibration_read() {
  uint64_t rate = 0;
  std::ifstream file(calibration_file());
  return file >> rate ? rate : 0;
}

void calibration_write(uint64_t bytes_per_second) {
  std::string error;
  if (!private_dir_make(fabrics_dir(), &error)) throw std::runtime_error(error);
  const std::string draft = calibration_file() + "." + std::to_string(getpid());
  std::ofstream file(draft);
  file << bytes_per_second << "\n";
  file.close();
  if (!file || rename(draft.c_str(), calibration_file().c_str()) != 0)
    throw std::runtime_error(calibration_file() + ": cannot be written");
}

}  // namespace cxemu
