// Checks of the RDMA libraries and of the program to be run.
#include <dlfcn.h>
#include <elf.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "host/cli/doctor.h"

namespace cxemu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTestedVersion = "44";  // Debian 12

// The version of a Debian package; empty if it is not installed or the system is not Debian.
std::string package_version(const std::string& package) {
  int status;
  const std::string shown = command_output(
      "dpkg-query -W -f '${db:Status-Status} ${Version}' " + package + " 2>/dev/null", &status);
  constexpr std::string_view kInstalled = "installed ";
  return shown.starts_with(kInstalled) ? shown.substr(kInstalled.size()) : "";
}

Finding library_check() {
  if (dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr)
    return {"libibverbs", Health::kFail, dlerror(), "apt install libibverbs1"};
  const std::string version = package_version("libibverbs1");
  if (version.starts_with(kTestedVersion))
    return {"libibverbs", Health::kOk, "libibverbs1 " + version, ""};
  std::string advice = "tested with rdma-core ";
  advice.append(kTestedVersion).append("; others usually work");
  return {"libibverbs", Health::kWarn,
          version.empty() ? "libibverbs.so.1 of unknown version" : "libibverbs1 " + version,
          advice};
}

Finding provider_check() {
  const std::string advice = "apt install ibverbs-providers";
  bool configured = false;
  std::error_code ignored;
  for (const char* dir : {"/etc/libibverbs.d", "/usr/local/etc/libibverbs.d"})
    configured |= fs::exists(fs::path(dir) / "mlx5.driver", ignored);
  if (!configured)
    return {"mlx5-provider", Health::kFail, "no mlx5.driver in /etc/libibverbs.d", advice};
  if (dlopen("libmlx5.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr)
    return {"mlx5-provider", Health::kFail, dlerror(), advice};
  return {"mlx5-provider", Health::kOk, "ibverbs-providers " + package_version("ibverbs-providers"),
          ""};
}

std::string program_find(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* path = getenv("PATH");
  std::istringstream dirs(path != nullptr ? path : "");
  for (std::string dir; std::getline(dirs, dir, ':');)
    if (access((dir + "/" + name).c_str(), X_OK) == 0) return dir + "/" + name;
  return "";
}

Finding programs_check() {
  std::string missing;
  for (const auto& [program, package] :
       {std::pair{"ibv_devinfo", "ibverbs-utils"}, std::pair{"ib_write_bw", "perftest"}})
    if (program_find(program).empty()) missing += std::string(missing.empty() ? "" : " ") + package;
  if (missing.empty())
    return {"test-programs", Health::kOk, "ibverbs-utils and perftest are installed", ""};
  return {"test-programs", Health::kWarn, "not installed: " + missing, "apt install " + missing};
}

#if defined(__aarch64__)
constexpr uint16_t kOwnMachine = EM_AARCH64;
#else
constexpr uint16_t kOwnMachine = EM_X86_64;
#endif

enum class Linkage { kDynamic, kStatic, kForeign, kScript };

Linkage linkage_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  if (memcmp(header.e_ident, "#!", 2) == 0) return Linkage::kScript;
  if (!file || memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != kOwnMachine)
    return Linkage::kForeign;
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    file.seekg(static_cast<std::streamoff>(header.e_phoff + uint64_t{header.e_phentsize} *
                                                                static_cast<uint64_t>(i)));
    file.read(reinterpret_cast<char*>(&segment), sizeof segment);
    if (file && segment.p_type == PT_INTERP) return Linkage::kDynamic;
  }
  return Linkage::kStatic;
}

}  // namespace

std::vector<Finding> package_findings() {
  return {library_check(), provider_check(), programs_check()};
}

std::vector<Finding> program_findings(const std::string& program) {
  const std::string path = program_find(program);
  struct stat st;
  if (path.empty() || stat(path.c_str(), &st) != 0)
    return {{"program", Health::kFail, program + " not found", "install it, or give its path"}};
  const bool set_id = (st.st_mode & (S_ISUID | S_ISGID)) != 0;
  const bool capable = getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  if ((set_id || capable) && geteuid() != 0)
    return {{"program", Health::kFail, path + " is set-uid or has file capabilities",
             "the loader ignores LD_PRELOAD for it: run a plain copy"}};
  switch (linkage_of(path)) {
    case Linkage::kStatic:
      return {{"program", Health::kFail, path + " is statically linked",
               "LD_PRELOAD does not reach it: link it dynamically"}};
    case Linkage::kForeign:
      return {{"program", Health::kFail, path + " is no program for this processor",
               "use a 64-bit build"}};
    case Linkage::kScript:
      return {{"program", Health::kOk, path + " is a script; what it starts is emulated", ""}};
    case Linkage::kDynamic:
      break;
  }
  return {{"program", Health::kOk, path, ""}};
}

}  // namespace cxemu
