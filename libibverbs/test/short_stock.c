// A stock library with three functions, for a front that expects many more.
#define EXPORT __attribute__((visibility("default")))

EXPORT void* ibv_open_device(void* device) {
  return device;
}

EXPORT int ibv_fork_init(void) {
  return 4711;
}

EXPORT int verbs_init_cq(void) {
  return 4712;
}
