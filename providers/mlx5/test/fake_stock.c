/* A stock libmlx5 that notes what it is given. It has functions that the distribution's lacks. */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const void* fake_argument;
EXPORT int fake_version;

struct object {
  const void* in;
  void* out;
};

/* mlx5dv_obj: the queue pair comes first, the completion queue second. */
static int note(int version, struct object* obj) {
  fake_version = version;
  fake_argument = obj[1].in;
  return 0;
}
EXPORT int init_obj_old(struct object* obj, uint64_t types) {
  (void)types;
  return note(0, obj);
}
EXPORT int init_obj_new(struct object* obj, uint64_t types) {
  (void)types;
  return note(2, obj);
}
__asm__(".symver init_obj_old, mlx5dv_init_obj@MLX5_1.0");
__asm__(".symver init_obj_new, mlx5dv_init_obj@@MLX5_1.2");

EXPORT _Bool mlx5dv_is_supported(const void* device) {
  fake_argument = device;
  return 1;
}
EXPORT int mlx5dv_get_data_direct_sysfs_path(const void* context, char* path, size_t size) {
  (void)path;
  (void)size;
  fake_argument = context;
  return 0;
}
EXPORT void* mlx5dv_reg_dmabuf_mr(const void* pd, uint64_t offset, size_t length, uint64_t iova,
                                  int fd, int access, int more) {
  (void)offset, (void)length, (void)iova, (void)fd, (void)access, (void)more;
  fake_argument = pd;
  return &fake_argument;
}
EXPORT int mlx5dv_devx_qp_modify(const void* qp, const void* in, size_t in_size, void* out,
                                 size_t out_size) {
  (void)in, (void)in_size, (void)out, (void)out_size;
  fake_argument = qp;
  return 0;
}
EXPORT int mlx5dv_of_the_future(int value) {
  return value + 1;
}
