// Direct verbs on devices and contexts: functions that only ask about them, or make objects that
// belong to one NIC anyway.
#include "caller.h"
#include "direct.h"
#include "newer.h"

namespace shift::mlx5 {
namespace {

struct IsSupported {
  static inline bool (*stock)(ibv_device*) = nullptr;
  // Programs choose their data path by this answer. A module that is linked with what would be
  // refused later has to be told so now. All others hear the truth: they only ask, and may take a
  // no for a card of another kind. The symbol is a jump, so the return address is the module's.
  [[gnu::noinline]] static bool call(ibv_device* device) {
    if (!is_virtual(device)) return stock(device);
    const bool is = stock(real(device));
    if (!is || mode() != DirectVerbs::kRefuse) return is;
    if (!is_linked_with_queues(__builtin_return_address(0))) return true;
    static std::atomic<bool> told{false};
    if (!told.exchange(true)) {
      virtual_objects()->warn(
          "mlx5 direct verbs would go past SHIFT: programs are told that there are none and use "
          "plain verbs (SHIFT_DIRECT_VERBS=unprotected: use them, without protection)");
    }
    return false;
  }
};

// A region registered with data direct belongs to one NIC and is refused, so there is no such path.
struct GetDataDirectPath {
  static inline int (*stock)(ibv_context*, char*, size_t) = nullptr;
  static int call(ibv_context* context, char* path, size_t size) {
    if (is_virtual(context) && mode() != DirectVerbs::kUnprotected) return ENODEV;
    return stock(real(context), path, size);
  }
};

struct OpenDevice {
  static inline ibv_context* (*stock)(ibv_device*, mlx5dv_context_attr*) = nullptr;
  static ibv_context* call(ibv_device* device, mlx5dv_context_attr* attr) {
    if (!is_virtual(device)) return stock(device, attr);
    ibv_context* own = stock(real(device), attr);
    if (own == nullptr) return nullptr;
    if (mode() == DirectVerbs::kUnprotected) {
      tell_unprotected("mlx5dv_open_device");
      return own;
    }
    // The NIC can do what is asked, and so can a context opened without asking.
    ibv_close_device(own);
    return ibv_open_device(device);
  }
};

struct GetVfioDeviceList {
  static inline ibv_device** (*stock)(mlx5dv_vfio_context_attr*) = nullptr;
  static ibv_device** call(mlx5dv_vfio_context_attr* attr) {
    ibv_device** list = stock(attr);
    const VirtualObjects* objects = virtual_objects();
    if (list == nullptr || objects == nullptr) return list;
    return objects->own_list(list, 1);
  }
};

// Virtual devices belong to the kernel driver; the stock functions would not check that.
struct VfioGetEventsFd {
  static inline int (*stock)(ibv_context*) = nullptr;
  static int call(ibv_context* context) {
    if (!is_virtual(context)) return stock(context);
    errno = EOPNOTSUPP;
    return -1;
  }
};
struct VfioProcessEvents {
  static inline int (*stock)(ibv_context*) = nullptr;
  static int call(ibv_context* context) {
    return is_virtual(context) ? EOPNOTSUPP : stock(context);
  }
};

}  // namespace

SHIFT_LEAD(mlx5dv_is_supported, IsSupported)
SHIFT_LEAD(mlx5dv_open_device, OpenDevice)
SHIFT_LEAD(mlx5dv_get_data_direct_sysfs_path, GetDataDirectPath)
SHIFT_LEAD(mlx5dv_get_vfio_device_list, GetVfioDeviceList)
SHIFT_LEAD(mlx5dv_vfio_get_events_fd, VfioGetEventsFd)
SHIFT_LEAD(mlx5dv_vfio_process_events, VfioProcessEvents)

SHIFT_ASKS(mlx5dv_query_device)
SHIFT_ASKS(_mlx5dv_query_port)
SHIFT_ASKS(mlx5dv_get_clock_info)
SHIFT_ASKS(mlx5dv_set_context_attr)

SHIFT_ASKS(mlx5dv_alloc_dm)
SHIFT_ASKS(mlx5dv_alloc_var)
SHIFT_ASKS(mlx5dv_var_import)
SHIFT_ASKS(mlx5dv_pp_alloc)
SHIFT_ASKS(mlx5dv_reserved_qpn_alloc)
SHIFT_ASKS(mlx5dv_reserved_qpn_dealloc)
SHIFT_ASKS(mlx5dv_sched_leaf_create)
SHIFT_ASKS(mlx5dv_sched_node_create)

SHIFT_ASKS(mlx5dv_crypto_login)
SHIFT_ASKS(mlx5dv_crypto_login_create)
SHIFT_ASKS(mlx5dv_crypto_login_query_state)
SHIFT_ASKS(mlx5dv_crypto_logout)

SHIFT_ASKS(mlx5dv_create_flow_action_esp)
SHIFT_ASKS(mlx5dv_create_flow_action_modify_header)
SHIFT_ASKS(mlx5dv_create_flow_action_packet_reformat)
SHIFT_ASKS(mlx5dv_create_flow_matcher)
SHIFT_ASKS(mlx5dv_create_steering_anchor)
SHIFT_ASKS(mlx5dv_dr_domain_create)

SHIFT_ASKS(mlx5dv_devx_alloc_msi_vector)
SHIFT_ASKS(mlx5dv_devx_alloc_uar)
SHIFT_ASKS(mlx5dv_devx_create_cmd_comp)
SHIFT_ASKS(mlx5dv_devx_create_eq)
SHIFT_ASKS(mlx5dv_devx_create_event_channel)
SHIFT_ASKS(mlx5dv_devx_general_cmd)
SHIFT_ASKS(mlx5dv_devx_query_eqn)
SHIFT_ASKS(mlx5dv_devx_umem_reg)
SHIFT_ASKS(mlx5dv_devx_umem_reg_ex)
SHIFT_ASKS(mlx5dv_devx_umem_import)
SHIFT_ASKS(mlx5dv_devx_obj_import)

}  // namespace shift::mlx5
