// Functions of stock libraries newer than the oldest one that the project builds with.
#pragma once

#include <infiniband/mlx5dv.h>

extern "C" {
ibv_mr* mlx5dv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                             int access, int mlx5_access);
int mlx5dv_get_data_direct_sysfs_path(ibv_context* context, char* path, size_t size);
mlx5dv_devx_obj* mlx5dv_devx_obj_import(ibv_context* context, void* data);
mlx5dv_devx_umem* mlx5dv_devx_umem_import(ibv_context* context, void* data);
mlx5dv_var* mlx5dv_var_import(ibv_context* context, void* data);
}
