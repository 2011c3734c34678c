// A small verbs program for tests. It opens a device, prints every asynchronous event, and obeys
// lines on its standard input: "pd", "port", "hooks", "fork", "import", "close".
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>

namespace {

ibv_context* device_open(const char* name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count && context == nullptr; ++i)
    if (strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  return context;
}

// Returns "ok" or the error's text.
const char* pd_try(ibv_context* context) {
  errno = 0;
  ibv_pd* pd = ibv_alloc_pd(context);
  if (pd == nullptr) return strerror(errno);
  const int error = ibv_dealloc_pd(pd);
  return error == 0 ? "ok" : strerror(error);
}

// Shows which ways to poll lead through the emulator after the next command.
void hooks_show(ibv_context* context) {
  ibv_cq_init_attr_ex plain{};
  plain.cqe = 16;
  plain.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_init_attr_ex timed = plain;
  timed.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  for (ibv_cq_init_attr_ex* attributes : {&plain, &timed}) {
    ibv_cq_ex* cq = ibv_create_cq_ex(context, attributes);
    const auto before = cq->start_poll;
    pd_try(context);
    printf("start_poll: %s\n", cq->start_poll != before ? "ours" : "original");
    ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
  }
}

// Opens the same device by a duplicate of its descriptor, which sees what the other one made.
void import_run(ibv_context* context, ibv_pd* pd) {
  ibv_context* imported = ibv_import_device(dup(context->cmd_fd));
  if (imported == nullptr) {
    printf("import: %s\n", strerror(errno));
    return;
  }
  ibv_pd* same = ibv_import_pd(imported, pd->handle);
  ibv_cq* cq = ibv_create_cq(imported, 16, nullptr, nullptr, 0);
  printf("import: pd %s, cq %s, ", same != nullptr ? "ok" : strerror(errno),
         cq != nullptr ? "ok" : strerror(errno));
  if (cq != nullptr) ibv_destroy_cq(cq);
  if (same != nullptr) ibv_unimport_pd(same);
  const int closed = ibv_close_device(imported);
  printf("closed %d, the first one %s\n", closed, pd_try(context));
}

// Writes memory of the device through one mapping and reads it through another.
const char* device_memory_try(ibv_context* context) {
  ibv_alloc_dm_attr attributes{};
  attributes.length = 100;
  ibv_dm* dm = ibv_alloc_dm(context, &attributes);
  if (dm == nullptr) return strerror(errno);
  char out[] = "1234567", in[sizeof out] = {};
  const bool same = ibv_memcpy_to_dm(dm, 8, out, sizeof out) == 0 &&
                    ibv_memcpy_from_dm(in, dm, 8, sizeof in) == 0 && strcmp(in, out) == 0;
  return ibv_free_dm(dm) == 0 && same ? "ok" : "wrong";
}

void child_run(ibv_context* inherited, const char* name) {
  const std::string old = pd_try(inherited);
  ibv_context* own = device_open(name);
  printf("child: inherited %s, device memory %s, own %s\n", old.c_str(),
         device_memory_try(inherited), own == nullptr ? "not opened" : pd_try(own));
  if (own != nullptr) ibv_close_device(own);
  fflush(stdout);
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "mlx5_0";
  setvbuf(stdout, nullptr, _IOLBF, 0);
  ibv_context* context = device_open(name);
  if (context == nullptr) {
    printf("open failed: %s\n", strerror(errno));
    return 1;
  }
  fcntl(context->async_fd, F_SETFL, O_NONBLOCK);
  // Made while the device is healthy, destroyed when it may be dead.
  ibv_pd* pd = ibv_alloc_pd(context);
  ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  static char memory[4096];
  ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
  printf("ready\n");
  for (std::string line;;) {
    pollfd wait[2] = {{0, POLLIN, 0}, {context->async_fd, POLLIN, 0}};
    poll(wait, 2, -1);
    ibv_async_event event;
    while (ibv_get_async_event(context, &event) == 0) {
      printf("event: %s\n", ibv_event_type_str(event.event_type));
      ibv_ack_async_event(&event);
    }
    if (wait[0].revents == 0) continue;
    char text[64];
    const ssize_t length = read(0, text, sizeof text);
    if (length <= 0) return 1;
    line.assign(text, static_cast<size_t>(length) - 1);
    if (line == "pd") printf("pd: %s\n", pd_try(context));
    if (line == "port") {
      ibv_port_attr port{};
      const int error = ibv_query_port(context, 1, &port);
      printf("port: %s\n", error != 0 ? strerror(error) : ibv_port_state_str(port.state));
    }
    if (line == "hooks") hooks_show(context);
    if (line == "import") import_run(context, pd);
    if (line == "fork") {
      const pid_t child = fork();
      if (child == 0) child_run(context, name);
      waitpid(child, nullptr, 0);
      printf("parent: %s\n", pd_try(context));
    }
    if (line == "close") break;
  }
  const int mr_error = ibv_dereg_mr(mr), cq_error = ibv_destroy_cq(cq),
            pd_error = ibv_dealloc_pd(pd), device_error = ibv_close_device(context);
  printf("closed: %d %d %d %d\n", mr_error, cq_error, pd_error, device_error);
  return 0;
}
