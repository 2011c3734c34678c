// fault-at FABRIC HOST/mlx5_N FAULT works like `cxemu fault`, and prints the CLOCK_MONOTONIC time
// in ns at which the NIC broke. Starting a program takes longer than noticing a fault does.
#include <time.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "fabric/fabric.h"
#include "fabric/fault.h"
#include "fabric/paths.h"

namespace {

[[noreturn]] void fail(const std::string& message) {
  fprintf(stderr, "fault-at: %s\n", message.c_str());
  exit(1);
}

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) fail("usage: fault-at FABRIC HOST/mlx5_N FAULT");
  const std::string name = argv[1], target = argv[2];
  const size_t end_of_host = target.find("/mlx5_");
  if (!cxemu::name_valid(name) || end_of_host == std::string::npos) fail("bad name");
  std::string error;
  const cxemu::Fabric fabric = cxemu::Fabric::open(cxemu::fabric_file(name), &error);
  if (!fabric) fail(error);
  const int host = fabric.host_find(target.substr(0, end_of_host));
  const int nic = atoi(target.c_str() + end_of_host + 6);
  if (host < 0 || nic < 0 || nic >= fabric.host_nics(host)) fail(target + ": no such NIC");
  cxemu::FaultCommand command;
  if (!cxemu::fault_parse(*fabric, argv[3], &command, &error)) fail(error);
  const int64_t when = now_ns();
  if (!cxemu::fault_apply(*fabric, *fabric.nic(host, nic), command, cxemu::monotonic_ns(), &error))
    fail(error);
  printf("%" PRId64 "\n", when);
  return 0;
}
