// Checks of the kernel, of files and of limits.
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "fabric/paths.h"
#include "host/cli/commands.h"
#include "host/cli/doctor.h"

namespace cxemu {
namespace {

namespace fs = std::filesystem;

Finding preload_check() {
  const std::string name = "preload";
  std::string library, loaded, error_told_below;
  try {
    library = library_path();
    private_dir_make(fabrics_dir(), &error_told_below);
    loaded = preloadable(library, fabrics_dir());
  } catch (const std::exception& error) {
    return {name, Health::kFail, error.what(), "install cxemu with its library, elsewhere"};
  }
  int status;
  const std::string maps = command_output(
      "LD_PRELOAD='" + preload_list(loaded) + "' cat /proc/self/maps 2>/dev/null", &status);
  if (status == 0 && maps.find(library) != std::string::npos)
    return {name, Health::kOk, library, ""};
  return {name, Health::kFail, "LD_PRELOAD of " + library + " is not honoured",
          "this system ignores LD_PRELOAD (secure-execution mode, another C library): run cxemu as "
          "an ordinary user on glibc"};
}

Finding device_file_check() {
  const std::string name = "dev-zero";
  const int fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
  struct stat st;
  bool good = fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 5);
  if (good) {
    void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    good = page != MAP_FAILED;
    if (good) munmap(page, 4096);
  }
  if (fd >= 0) close(fd);
  if (good) return {name, Health::kOk, "/dev/zero can be opened and mapped", ""};
  return {name, Health::kFail, "/dev/zero is not the device that it should be",
          "device files are found as /dev/zero: give the container a normal /dev"};
}

Finding state_dir_check() {
  const std::string name = "state-dir";
  const std::string dir = fabrics_dir();
  std::string error;
  if (!private_dir_make(dir, &error))
    return {name, Health::kFail, error, "set XDG_RUNTIME_DIR to a folder of your own"};
  std::string file = dir + "/doctor-XXXXXX";
  const int fd = mkstemp(file.data());
  void* page = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, 4096) == 0)
    page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  const int problem = errno;
  if (page != MAP_FAILED) munmap(page, 4096);
  if (fd >= 0) {
    close(fd);
    unlink(file.c_str());
  }
  if (page != MAP_FAILED) return {name, Health::kOk, dir, ""};
  return {name, Health::kFail, dir + ": " + strerror(problem),
          "fabrics are mapped files there: free space, or set XDG_RUNTIME_DIR"};
}

Finding memory_file_check() {
  const int fd = memfd_create("cxemu-doctor", MFD_CLOEXEC);
  if (fd < 0)
    return {"memfd", Health::kFail, std::string("memfd_create: ") + strerror(errno),
            "open devices and changing sysfs files are memory files: allow the system call"};
  close(fd);
  return {"memfd", Health::kOk, "memory files can be made", ""};
}

Finding processors_check() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  const int count = CPU_COUNT(&set);
  const std::string detail = std::to_string(count) + " processor(s)";
  if (count >= 2) return {"processors", Health::kOk, detail, ""};
  return {"processors", Health::kWarn, detail,
          "two programs that poll, and their NICs, share it: expect milliseconds of latency"};
}

// Runs in a child process, because the change it tries cannot be undone.
Finding priority_check() {
  const pid_t child = fork();
  if (child == 0) _exit(setpriority(PRIO_PROCESS, 0, -10) == 0 ? 0 : 1);
  int status = -1;
  if (child > 0) waitpid(child, &status, 0);
  if (child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return {"priority", Health::kOk, "NIC threads run at nice -10", ""};
  return {"priority", Health::kWarn, "nice -10 is not permitted",
          "on a busy machine NICs react later: raise 'ulimit -e' (RLIMIT_NICE) to 30"};
}

Finding real_devices_check() {
  int count = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/sys/class/infiniband", ignored)) {
    (void)entry;
    ++count;
  }
  const bool files = fs::exists("/dev/infiniband", ignored);
  if (count == 0 && !files)
    return {"real-devices", Health::kOk, "no real RDMA devices to hide", ""};
  return {"real-devices", Health::kWarn, std::to_string(count) + " real RDMA device(s)",
          "programs on emulated hosts do not see them"};
}

Finding shared_memory_check() {
  constexpr uint64_t kWanted = 256ull << 20;
  struct statvfs st;
  if (statvfs("/dev/shm", &st) != 0 || access("/dev/shm", W_OK) != 0)
    return {"dev-shm", Health::kWarn, "/dev/shm is not usable",
            "cxemu does without, but MPI, UCX and PyTorch want it"};
  const uint64_t free_bytes = uint64_t{st.f_bavail} * st.f_frsize;
  const std::string detail = std::to_string(free_bytes >> 20) + " MiB free in /dev/shm";
  if (free_bytes >= kWanted) return {"dev-shm", Health::kOk, detail, ""};
  return {"dev-shm", Health::kWarn, detail,
          "MPI, UCX and PyTorch may want more: give the container --shm-size=1g"};
}

Finding locked_memory_check() {
  constexpr rlim_t kWanted = 8 << 20;
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string detail =
      limit.rlim_cur == RLIM_INFINITY ? "no limit" : std::to_string(limit.rlim_cur >> 10) + " KiB";
  if (limit.rlim_cur >= kWanted) return {"locked-memory", Health::kOk, detail, ""};
  return {"locked-memory", Health::kWarn, detail,
          "cxemu locks no memory, but programs may look at 'ulimit -l' and complain"};
}

Finding descriptors_check() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string detail = std::to_string(limit.rlim_cur) + " open files";
  if (limit.rlim_cur >= 1024) return {"open-files", Health::kOk, detail, ""};
  return {"open-files", Health::kWarn, detail,
          "every peer process costs two descriptors: raise 'ulimit -n'"};
}

}  // namespace

std::vector<Finding> system_findings() {
  return {preload_check(),       device_file_check(), state_dir_check(),    memory_file_check(),
          processors_check(),    priority_check(),    real_devices_check(), shared_memory_check(),
          locked_memory_check(), descriptors_check()};
}

}  // namespace cxemu
