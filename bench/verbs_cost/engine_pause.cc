#include "engine_pause.h"

#include <dlfcn.h>

namespace bench {
namespace {

using Function = void (*)();

// `cxemu exec` preloads these functions; this program links only the verbs library.
Function find(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}
const Function pause_engine = find("cxemu_pause");
const Function resume_engine = find("cxemu_resume");

}  // namespace

bool EnginePause::available() {
  return pause_engine != nullptr && resume_engine != nullptr;
}

EnginePause::EnginePause() {
  if (available()) pause_engine();
}

EnginePause::~EnginePause() {
  if (available()) resume_engine();
}

}  // namespace bench
