// `cxemu exec` and `cxemu env`: the environment of a program on an emulated host.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "fabric/fabric.h"
#include "fabric/paths.h"
#include "host/cli/commands.h"
#include "host/sysfs_tree.h"

namespace cxemu {

// The library is next to the program in a build tree, or in the library folder when installed.
std::string library_path() {
  const std::filesystem::path bin = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  for (const std::filesystem::path& folder :
       {bin / "../lib", bin / "../lib/cxemu", std::filesystem::path(CXEMU_LIBRARY_DIR)}) {
    std::error_code ignored;
    const std::filesystem::path found = std::filesystem::canonical(folder / "libcxemu.so", ignored);
    if (!found.empty()) return found.string();
  }
  throw std::runtime_error("libcxemu.so not found near " + bin.string());
}

// Puts this library first, except that a sanitizer's run-time must precede all; each library
// appears once.
std::string preload_list(const std::string& library) {
  std::string list = SHIFT_SANITIZER_RUNTIME;
  if (!list.empty()) list += ":";
  list += library;
  const char* inherited = getenv("LD_PRELOAD");
  std::string rest = inherited != nullptr ? inherited : "";
  for (size_t at = 0; at < rest.size();) {
    const size_t end = std::min(rest.find_first_of(": ", at), rest.size());
    const std::string entry = rest.substr(at, end - at);
    if (!entry.empty() && entry != library && entry != SHIFT_SANITIZER_RUNTIME) list += ":" + entry;
    at = end + 1;
  }
  return list;
}

// A path with blanks or colons needs a link: the dynamic linker splits LD_PRELOAD there.
std::string preloadable(const std::string& library, const std::string& folder) {
  namespace fs = std::filesystem;
  constexpr char kSplitters[] = " :";
  if (library.find_first_of(kSplitters) == std::string::npos) return library;
  const std::string link = folder + "/libcxemu.so";
  if (link.find_first_of(kSplitters) != std::string::npos)
    throw std::runtime_error("no program can load " + library + ", nor a link to it in " + folder +
                             ": a blank or a colon is in both names; set XDG_RUNTIME_DIR to a "
                             "folder without");
  std::error_code none;
  if (fs::read_symlink(link, none) == library) return link;
  // Other processes may be starting programs by this link right now, so it is replaced atomically.
  const std::string made = link + "." + std::to_string(getpid());
  fs::remove(made);
  fs::create_symlink(library, made);
  fs::rename(made, link);
  return link;
}

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

constexpr int kNicsDefault = 2;

FabricWire wire_parse(const std::string& name) {
  if (name == "unix") return kWireUnix;
  if (name == "udp") return kWireUdp;
  throw std::runtime_error("wire '" + name + "': unix or udp");
}

// The wire of a fabric that would be made now.
FabricWire wire_wanted(const ExecOptions& options) {
  if (!options.wire.empty()) return wire_parse(options.wire);
  const char* inherited = getenv("CXEMU_WIRE");
  return inherited != nullptr && *inherited != '\0' ? wire_parse(inherited) : kWireUnix;
}

bool udp_port_free(uint32_t ipv4_be, uint16_t port) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = ipv4_be;
  own.sin_port = htons(port);
  const bool taken = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 &&
                     errno == EADDRINUSE;
  if (fd >= 0) close(fd);
  return !taken;
}

// A process that receives RoCE for all addresses of the machine, as the kernel's RoCE does, would
// keep all packets from the NICs, and programs would wait for each other for ever. Processes of the
// emulated host itself may have the ports.
void udp_ports_check(const Fabric& fabric, int host) {
  constexpr uint16_t kRocePort = 4791;
  for (int i = 0; i < fabric.host_nics(host); ++i) {
    const uint32_t address = fabric.nic(host, i)->ipv4_be;
    if (udp_port_free(address, kRocePort) || fabric.process_count(host) > 0) continue;
    if (udp_port_free(address, kRocePort)) continue;  // the process that had it has just ended
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &address, text, sizeof text);
    throw std::runtime_error(std::string("UDP port 4791 of ") + text +
                             " is taken, perhaps by the kernel's RoCE; the udp wire needs it");
  }
}

Variables host_environment(const ExecOptions& options) {
  if (!name_valid(options.fabric))
    throw std::runtime_error("fabric '" + options.fabric + "': 1 to 24 letters, digits, - and _");
  if (!name_valid(options.host))
    throw std::runtime_error("host '" + options.host + "': 1 to 24 letters, digits, - and _");
  const std::string file = fabric_file(options.fabric);
  std::string error;
  Fabric fabric = Fabric::open_or_create(file, wire_wanted(options), &error);
  if (!fabric) throw std::runtime_error(error);
  if (!options.wire.empty() && fabric->wire != wire_parse(options.wire))
    throw std::runtime_error("fabric " + options.fabric +
                             " exists with another wire; 'cxemu clean " + "--fabric " +
                             options.fabric + "' removes it");
  std::vector<PlacedNic> placed;
  if (!options.topology.empty()) placed = topology_read(options.topology);
  const int wanted = std::max(options.nics, static_cast<int>(placed.size()));
  int host = fabric.host_find(options.host);
  const bool is_new = host < 0;
  if (host < 0 || wanted > 0)
    host = fabric.host_ensure(options.host, wanted > 0 ? wanted : kNicsDefault);
  if (host < 0)
    throw std::runtime_error("fabric " + options.fabric + " has its " + std::to_string(kMaxHosts) +
                             " hosts already");
  if (fabric->host_off[host].load() != 0)
    throw std::runtime_error("host " + options.host + " is switched off; 'cxemu fault " +
                             options.host + " power-on' ends this");
  if (!placed.empty() && (is_new || !topology_holds(fabric, host, placed)))
    topology_set(options.fabric, fabric, host, placed);
  if (fabric->wire == kWireUdp) udp_ports_check(fabric, host);
  const std::string sysfs = host_sysfs_dir(fabric_dir(options.fabric), options.host);
  sysfs_tree_make(fabric, host, sysfs);
  return {
      {"LD_PRELOAD", preload_list(preloadable(library_path(), fabric_dir(options.fabric)))},
      {"SYSFS_PATH", sysfs},
      {"CXEMU_FABRIC", options.fabric},
      {"CXEMU_FABRIC_FILE", file},
      {"CXEMU_HOST", options.host},
  };
}

}  // namespace

int exec_run(const ExecOptions& options) {
  for (const auto& [name, value] : host_environment(options))
    setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : options.command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  fprintf(stderr, "cxemu: %s: %s\n", arguments[0], strerror(error));
  return error == ENOENT ? 127 : 126;  // as shells do
}

int env_run(const ExecOptions& options) {
  for (const auto& [name, value] : host_environment(options)) {
    std::string quoted;
    for (const char c : value) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
    printf("export %s='%s'\n", name.c_str(), quoted.c_str());
  }
  return 0;
}

}  // namespace cxemu
