// Prints the failure state machine, and keeps documents that contain it up to date.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "render.h"

namespace {

using shift::fsm_gen::render;

constexpr char kUsage[] =
    "usage: fsm-gen markdown|mermaid|dot|json|promela   print the state machine\n"
    "       fsm-gen --promela FILE              write it for the model checker\n"
    "       fsm-gen --check FILE                fail when FILE's generated parts are out of date\n"
    "       fsm-gen --update FILE               rewrite them\n"
    "Generated parts stand between <!-- fsm-gen: FORM --> and <!-- fsm-gen: end -->.\n";

constexpr char kMarker[] = "<!-- fsm-gen: ";
constexpr char kMarkerEnd[] = " -->\n";
constexpr char kEnd[] = "<!-- fsm-gen: end -->\n";

std::optional<std::string> read(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The document with its generated parts made anew. Nothing when a part is unknown or not closed,
// or when there is none at all.
std::optional<std::string> regenerate(const std::string& document) {
  std::string out;
  size_t at = 0;
  int parts = 0;
  for (;; parts++) {
    const size_t open = document.find(kMarker, at);
    if (open == std::string::npos) break;
    const size_t form_at = open + std::strlen(kMarker);
    const size_t form_end = document.find(kMarkerEnd, form_at);
    if (form_end == std::string::npos) return std::nullopt;
    const size_t body = form_end + std::strlen(kMarkerEnd);
    const size_t close = document.find(kEnd, body);
    const std::string text = render(document.substr(form_at, form_end - form_at));
    if (close == std::string::npos || text.empty()) return std::nullopt;
    out += document.substr(at, body - at) + "\n" + text;
    if (!out.ends_with("\n\n")) out += "\n";
    at = close;
    out += kEnd;
    at += std::strlen(kEnd);
  }
  if (parts == 0) return std::nullopt;
  return out + document.substr(at);
}

int keep_up_to_date(const char* path, bool update) {
  const auto document = read(path);
  if (!document) {
    std::fprintf(stderr, "fsm-gen: cannot read %s\n", path);
    return 1;
  }
  const auto fresh = regenerate(*document);
  if (!fresh) {
    std::fprintf(stderr, "fsm-gen: %s has no generated part, or a broken one\n", path);
    return 1;
  }
  if (*fresh == *document) return 0;
  if (!update) {
    std::fprintf(stderr,
                 "fsm-gen: %s does not show the state machine as it is; run: fsm-gen --update %s\n",
                 path, path);
    return 1;
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << *fresh;
  return file.flush() ? 0 : 1;
}

int write_promela(const char* path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << render("promela");
  if (file.flush()) return 0;
  std::fprintf(stderr, "fsm-gen: cannot write %s\n", path);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--check") == 0) return keep_up_to_date(argv[2], false);
  if (argc == 3 && std::strcmp(argv[1], "--update") == 0) return keep_up_to_date(argv[2], true);
  if (argc == 3 && std::strcmp(argv[1], "--promela") == 0) return write_promela(argv[2]);
  const std::string text = argc == 2 ? render(argv[1]) : "";
  if (text.empty()) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  std::fputs(text.c_str(), stdout);
  return 0;
}
