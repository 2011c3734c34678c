// shift-run runs a command with the layer in front of the system's libibverbs.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "front_dir.h"
#include "key_file.h"
#include "privileged.h"

namespace {

namespace fs = std::filesystem;

// The exit statuses with which a shell reports a command that it cannot run.
constexpr int kExitUsage = 125;
constexpr int kExitNotExecutable = 126;
constexpr int kExitNotFound = 127;

struct Options {
  std::string log;
  std::string events;
  std::string pairs;
  // An empty name is no missing option: whoever asks for keys must not run without them.
  std::optional<std::string> key;
  std::optional<std::string> make_key;
  std::optional<std::string> key_id;
  bool disable = false;
  std::vector<std::string> command;
};

[[noreturn]] void fail(int status, const std::string& message) {
  std::cerr << "shift-run: " << message << '\n';
  exit(status);
}

void warn(const std::string& message) {
  std::cerr << "shift-run: warning: " << message << '\n';
}

// CLI11 does not know about the command that follows the options.
class Formatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: shift-run [OPTIONS] [--] CMD [ARGS...]\n";
  }
};

std::string check_pairs(const std::string& list) {
  static const std::regex kList(R"([^=,\s]+(=[^=,\s]+){1,3}(,[^=,\s]+(=[^=,\s]+){1,3})*)");
  return std::regex_match(list, kList)
             ? ""
             : "expected DEVICE=DEVICE[=DEVICE...][,...], two to eight in a group";
}

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("Runs CMD with SHIFT between it and the system's RDMA verbs library.", "shift-run");
  app.formatter(std::make_shared<Formatter>());
  app.footer("Configuration: SHIFT_* variables and /etc/shift.conf; see shift-run(1).");
  app.set_version_flag("--version", "shift-run " SHIFT_VERSION);
  app.add_option("--log", options.log, "Log level (SHIFT_LOG)")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"error", "warn", "info", "debug"}));
  app.add_option("--events", options.events, "Append event records to FILE (SHIFT_EVENTS)")
      ->type_name("FILE");
  app.add_option("--pairs", options.pairs,
                 "Which devices back each other, two to eight in a group, the nearest first, as "
                 "mlx5_0=mlx5_1,mlx5_2=mlx5_3=mlx5_4 (SHIFT_PAIRS)")
      ->type_name("LIST")
      ->check(CLI::Validator(check_pairs, "", "pairs"));
  app.add_option("--key", options.key, "Take the job's keys from FILE (SHIFT_KEY_FILE)")
      ->type_name("FILE");
  app.add_flag("--disable", options.disable, "Load the layer, but leave it off (SHIFT_DISABLE)");
  app.add_option("--make-key", options.make_key,
                 "Make FILE with a new job key, print the key's id and exit")
      ->type_name("FILE");
  app.add_option("--key-id", options.key_id, "Print the ids of FILE's keys and exit")
      ->type_name("FILE");
  // The first word that is not an option of shift-run begins the command, which CLI11 must not
  // parse.
  app.prefix_command();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit(app.exit(error) == 0 ? 0 : kExitUsage);
  }
  options.command = app.remaining();
  if (!options.command.empty() && options.command.front() == "--") {
    options.command.erase(options.command.begin());
  } else if (!options.command.empty() && options.command.front().starts_with('-')) {
    fail(kExitUsage, options.command.front() + ": unknown option; see shift-run --help");
  }
  const bool makes = options.make_key.has_value(), shows = options.key_id.has_value();
  if (makes && shows) fail(kExitUsage, "--make-key and --key-id exclude each other");
  if ((makes || shows) && !options.command.empty())
    fail(kExitUsage, "--make-key and --key-id run no command; see shift-run --help");
  if (!makes && !shows && options.command.empty())
    fail(kExitUsage, "no command given; see shift-run --help");
  return options;
}

// Does what --make-key and --key-id ask for.
[[noreturn]] void show_keys(const Options& options) {
  std::string problem, ids;
  if (options.make_key) problem = shift::run::key_file_make(*options.make_key);
  const std::string& file = options.make_key ? *options.make_key : *options.key_id;
  if (problem.empty()) problem = shift::run::key_file_ids(file, ids);
  if (!problem.empty()) fail(kExitUsage, problem);
  std::cout << ids;
  exit(0);
}

void set_variable(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), 1);
}

// Puts `entry` first in a colon-separated variable.
void put_first(const char* name, const std::string& entry) {
  const char* old = getenv(name);
  const std::string rest = old != nullptr && *old != '\0' ? std::string(":") + old : "";
  setenv(name, (entry + rest).c_str(), 1);
}

[[noreturn]] void execute(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  const int error = errno;
  fail(error == ENOENT ? kExitNotFound : kExitNotExecutable,
       command.front() + ": " + (error == ENOENT ? "command not found" : strerror(error)));
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.command.empty()) show_keys(options);
  const auto candidates = shift::run::front_candidates(fs::read_symlink("/proc/self/exe"));
  const auto front = shift::run::front_find(candidates);
  if (!front) {
    std::string searched;
    for (const fs::path& dir : candidates) searched += "\n  " + dir.string();
    fail(kExitUsage, "SHIFT's libibverbs.so.1 is in none of:" + searched);
  }
  // The dynamic linker would split the path there, find nothing, and take the system's libraries.
  if (front->string().find_first_of(":;") != std::string::npos) {
    fail(kExitUsage, front->string() +
                         ": libraries cannot be loaded from a folder that has ':' or "
                         "';' in its name; move or install SHIFT elsewhere");
  }
  if (options.key) {
    const std::string problem = shift::run::key_file_check(*options.key);
    if (!problem.empty()) fail(kExitUsage, problem);
  }
  put_first("LD_LIBRARY_PATH", front->string());
  if (!options.disable) {
    for (const std::string& line : shift::run::fronts_missing(*front)) warn(line);
  }
  const std::string sanitizer = SHIFT_SANITIZER_RUNTIME;
  if (!sanitizer.empty()) put_first("LD_PRELOAD", sanitizer);
  set_variable("SHIFT_LOG", options.log);
  // The command may change its working folder before it writes.
  if (!options.events.empty()) set_variable("SHIFT_EVENTS", fs::absolute(options.events).string());
  if (options.key) set_variable("SHIFT_KEY_FILE", fs::absolute(*options.key).string());
  set_variable("SHIFT_PAIRS", options.pairs);
  if (options.disable) setenv("SHIFT_DISABLE", "1", 1);
  const std::string reason = shift::run::unreachable_because(options.command.front());
  if (!reason.empty()) warn(reason + ": the layer cannot be loaded into it");
  execute(options.command);
}
