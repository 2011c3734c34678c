// Prints the failure state machine, and keeps the documents that show it up to date.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "layout.h"
#include "render.h"

namespace {

using shift::fsm_gen::render;

constexpr char kUsage[] =
    "usage: fsm-gen markdown|svg|dot|json|promela   print the state machine\n"
    "       fsm-gen --promela FILE              write it for the model checker\n"
    "       fsm-gen --docs DIR                  write state-machine.md and state-machine.svg "
    "there\n"
    "       fsm-gen --check DIR                 fail when one of these is out of date\n";

struct Document {
  const char* name;
  const char* form;
};
constexpr Document kDocuments[] = {{"state-machine.md", "markdown"}, {"state-machine.svg", "svg"}};

bool write(const std::string& path, const char* form) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << render(form);
  if (file.flush()) return true;
  std::fprintf(stderr, "fsm-gen: cannot write %s\n", path.c_str());
  return false;
}

bool check(const std::string& path, const char* form) {
  std::ifstream file(path, std::ios::binary);
  if (file && std::string(std::istreambuf_iterator<char>(file), {}) == render(form)) return true;
  std::fprintf(stderr,
               "fsm-gen: %s does not show the state machine as it is; run: fsm-gen --docs docs\n",
               path.c_str());
  return false;
}

int documents(const std::string& folder, bool (*handle)(const std::string&, const char*)) {
  int status = 0;
  for (const Document& document : kDocuments) {
    if (!handle(folder + "/" + document.name, document.form)) status = 1;
  }
  return status;
}

// A picture that leaves something out would be worse than none.
bool can_be_drawn() {
  const auto problems = shift::fsm_gen::layout_problems(shift::fsm_gen::layout());
  for (const std::string& problem : problems) {
    std::fprintf(stderr, "fsm-gen: tools/fsm-gen/layout.cc: %s\n", problem.c_str());
  }
  return problems.empty();
}

}  // namespace

int main(int argc, char** argv) {
  const bool to_draw = argc == 3 || (argc == 2 && std::strcmp(argv[1], "svg") == 0);
  if (to_draw && !can_be_drawn()) return 1;
  if (argc == 3 && std::strcmp(argv[1], "--check") == 0) return documents(argv[2], check);
  if (argc == 3 && std::strcmp(argv[1], "--docs") == 0) return documents(argv[2], write);
  if (argc == 3 && std::strcmp(argv[1], "--promela") == 0) return write(argv[2], "promela") ? 0 : 1;
  const std::string text = argc == 2 ? render(argv[1]) : "";
  if (text.empty()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}
