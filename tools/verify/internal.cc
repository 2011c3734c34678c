#include "internal.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runner.h"
#include "trouble.h"

namespace shift::verify {

ChildFiles::ChildFiles() {
  const char* base = std::getenv("TMPDIR");
  std::string pattern =
      std::string(base != nullptr && *base != 0 ? base : "/tmp") + "/shift-verify-XXXXXX";
  if (mkdtemp(pattern.data()) == nullptr) fail("a folder for temporary files", errno);
  folder = pattern;
  log = folder + "/log";
  events = folder + "/events";
}

ChildFiles::~ChildFiles() {
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
}

std::string ChildFiles::last_line() const {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last.empty() ? "it says nothing" : last.substr(0, 300);
}

std::vector<std::string> layer_environment(const Subject& subject, const ChildFiles& files) {
  std::vector<std::string> env{"SHIFT_DISABLE=0", "SHIFT_LOG=warn", "SHIFT_LOG_TARGET=stderr",
                               "SHIFT_FAILBACK_MS=300", "SHIFT_EVENTS=" + files.events};
  // The default comes first, and the other one after it.
  if (subject.nics.size() == 2)
    env.push_back("SHIFT_PAIRS=" + subject.nics[0] + "=" + subject.nics[1]);
  return env;
}

int internal_main(int argc, char** argv) try {
  const std::string what = argc > 2 ? argv[2] : "";
  die_with_parent();
  if (what == "cost" && argc == 4) return internal_cost(argv[3]);
  if (what == "traffic" && argc == 9) {
    const std::string fault = argv[6];
    return internal_traffic({.nic = argv[3],
                             .events = argv[5],
                             .fd = std::atoi(argv[4]),
                             .fault = fault == "error"  ? Fault::kError
                                      : fault == "link" ? Fault::kLink
                                                        : Fault::kNone,
                             .down = argv[7],
                             .up = argv[8]});
  }
  std::fprintf(stderr, "shift-verify: unknown internal command\n");
  return 2;
} catch (const std::exception& trouble) {
  std::printf("%s\n", outcome_to_json(failure(trouble.what())).dump().c_str());
  std::fflush(stdout);
  return 1;
}

}  // namespace shift::verify
