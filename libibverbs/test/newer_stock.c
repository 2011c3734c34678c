// A stock library of years to come: the installed one, with verbs that it does not have yet. As in
// each stock library, a verb calls a function of the context's private table; so it crashes if the
// context has none. The table of this library has a layout of its own.
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

struct table {
  int (*future_verb)(struct ibv_context* context);
};

static int refuse(struct ibv_context* context) {
  (void)context;
  return EOPNOTSUPP;
}

static int serve(struct ibv_context* context) {
  (void)context;
  return 0;
}

static const struct table* table_of(struct ibv_context* context) {
  static const struct table real = {serve};
  // The providers' contexts come from the installed library, with its table.
  const struct verbs_context* extended = verbs_get_ctx(context);
  const struct table* table = (const struct table*)extended->priv;
  if (table->future_verb != refuse) table = &real;
  return table;
}

typedef void* make_context(struct ibv_device*, int, size_t, struct verbs_context*, uint32_t);

EXPORT void* _verbs_init_and_alloc_context(struct ibv_device* device, int cmd_fd, size_t alloc_size,
                                           struct verbs_context* context_offset,
                                           uint32_t driver_id) {
  void* installed = dlopen(INSTALLED_LIBIBVERBS, RTLD_LAZY | RTLD_NOLOAD);
  make_context* make = (make_context*)dlsym(installed, "_verbs_init_and_alloc_context");
  void* made = make(device, cmd_fd, alloc_size, context_offset, driver_id);
  if (cmd_fd != -1 || made == NULL) return made;
  struct verbs_context* context = (struct verbs_context*)((char*)made + (uintptr_t)context_offset);
  struct table* table = malloc(sizeof(*table));
  table->future_verb = refuse;
  free(context->priv);
  context->priv = (struct verbs_ex_private*)table;
  return made;
}

EXPORT int ibv_future_verb(struct ibv_context* context) {
  return table_of(context)->future_verb(context);
}

EXPORT int ibv_query_port_speed(struct ibv_context* context, uint32_t port, uint64_t* speed) {
  const int error = table_of(context)->future_verb(context);
  if (error == 0) *speed = 4000 + port;
  return error;
}

// These two are never right for a virtual domain.
EXPORT struct ibv_mr* ibv_reg_mr_ex(struct ibv_pd* pd, void* attr) {
  (void)attr;
  errno = table_of(pd->context)->future_verb(pd->context);
  return NULL;
}

EXPORT struct ibv_mr* ibv_reg_buf_mr(struct ibv_pd* pd, void* buffer, void* addr, size_t length,
                                     int access) {
  (void)buffer, (void)addr, (void)length, (void)access;
  errno = table_of(pd->context)->future_verb(pd->context);
  return NULL;
}
