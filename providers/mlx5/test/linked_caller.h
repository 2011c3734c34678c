// A library that is linked with functions of direct verbs that drive queues, as UCX's are.
#pragma once

#include <infiniband/mlx5dv.h>

#ifdef __cplusplus
extern "C" {
#endif

__attribute__((visibility("default"))) bool linked_is_supported(struct ibv_device* device);
// Is never called. It makes the library need the function.
__attribute__((visibility("default"))) int linked_look(struct mlx5dv_obj* object);

#ifdef __cplusplus
}
#endif
