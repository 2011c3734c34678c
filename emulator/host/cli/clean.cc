// `cxemu clean`.
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "fabric/fabric.h"
#include "fabric/net.h"
#include "fabric/paths.h"
#include "host/cli/commands.h"

namespace cxemu {
namespace {

namespace fs = std::filesystem;

void fabric_remove(const std::string& name) {
  const std::string file = fabric_file(name);
  std::string error;
  const Fabric fabric = Fabric::open(file, &error);
  if (fabric) {
    if (const int users = fabric.process_count(-1); users > 0)
      throw std::runtime_error("fabric " + name + ": " + std::to_string(users) +
                               " running process(es) use it");
    net_release("/tmp", fabric->net, file);
  }
  fs::remove_all(fabric_dir(name));
}

}  // namespace

int clean_run(const std::string& fabric_name, bool all) {
  if (!all) {
    if (!name_valid(fabric_name) || !fs::exists(fabric_dir(fabric_name)))
      throw std::runtime_error("no fabric '" + fabric_name + "'");
    fabric_remove(fabric_name);
    return 0;
  }
  int status = 0;
  if (!fs::exists(fabrics_dir())) return 0;
  for (const auto& entry : fs::directory_iterator(fabrics_dir())) {
    try {
      if (entry.is_directory()) fabric_remove(entry.path().filename().string());
    } catch (const std::runtime_error& error) {
      fprintf(stderr, "cxemu: %s\n", error.what());
      status = 1;
    }
  }
  return status;
}

}  // namespace cxemu
