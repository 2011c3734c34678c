// Replaces the C library's functions on descriptors; also the library's entry point.
#include <errno.h>
#include <linux/netlink.h>
#include <sys/socket.h>

#include <cstdarg>
#include <mutex>

#include "host/guest.h"
#include "host/interpose.h"
#include "host/real.h"
#include "uverbs/command.h"

namespace {

using cxemu::DeviceFile;
using cxemu::FdKind;
using cxemu::Guest;
using cxemu::Real;

Real<ssize_t(int, const void*, size_t)> g_write("write");
Real<int(int, unsigned long, ...)> g_ioctl("ioctl");
Real<int(int)> g_close("close");
Real<int(int, int, int)> g_socket("socket");
Real<int(int, const sockaddr*, socklen_t)> g_connect("connect");
Real<int(int, const sockaddr*, socklen_t)> g_bind("bind");
Real<int(int, sockaddr*, socklen_t*)> g_accept("accept");
Real<int(int, sockaddr*, socklen_t*, int)> g_accept4("accept4");

[[gnu::constructor]] void library_start() {
  Guest::start();
}

FdKind kind_of(int fd) {
  Guest* guest = Guest::get();
  return guest == nullptr ? FdKind::kOther : guest->fds().get(fd);
}

// Queues made by earlier commands are complete by now, so they can be hooked.
void settle(DeviceFile& device) {
  std::lock_guard lock(device.context->engine().lock());
  device.poll_hook.settle(device.fd);
}

// Runs a command; returns 0 or an errno. *device_gone: the descriptor now belongs to something
// else.
template <typename Run>
int device_command(int fd, bool* device_gone, const Run& run) {
  const std::shared_ptr<DeviceFile> device = Guest::get()->device_find(fd);
  *device_gone = device == nullptr;
  if (*device_gone) return 0;
  if (!device->context->orphaned()) settle(*device);
  return run(*device->context);
}

int fail(int error) {
  errno = error;
  return -1;
}

int socket_accepted(int fd) {
  Guest* guest = Guest::get();
  if (fd >= 0 && guest != nullptr && guest->tcp().after_bind_or_accept(fd)) guest->watcher_ensure();
  return fd;
}

}  // namespace

CXEMU_EXPORT(ssize_t, write, (int fd, const void* data, size_t length)) {
  if (const FdKind kind = kind_of(fd); kind == FdKind::kDevice || kind == FdKind::kLost) {
    const int saved = errno;
    bool gone;
    const int error = device_command(fd, &gone, [&](cxemu::Context& context) {
      return cxemu::command_write(context, data, length);
    });
    errno = saved;
    if (error != 0) return fail(error);
    if (!gone) return static_cast<ssize_t>(length);
  }
  return g_write(fd, data, length);
}

CXEMU_EXPORT(int, ioctl, (int fd, unsigned long request, ...)) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (const FdKind kind = kind_of(fd); kind == FdKind::kDevice || kind == FdKind::kLost) {
    const int saved = errno;
    bool gone;
    const int error = device_command(fd, &gone, [&](cxemu::Context& context) {
      return cxemu::command_ioctl(context, request, argument);
    });
    errno = saved;
    if (error != 0) return fail(error);
    if (!gone) return 0;
  }
  return g_ioctl(fd, request, argument);
}

CXEMU_EXPORT(int, close, (int fd)) {
  if (kind_of(fd) != FdKind::kOther) Guest::get()->fd_closing(fd);
  return g_close(fd);
}

CXEMU_EXPORT(int, socket, (int domain, int type, int protocol)) {
  // libibverbs would ask the kernel for its RDMA devices; when this is refused, it reads our sysfs.
  if (domain == AF_NETLINK && protocol == NETLINK_RDMA && Guest::get() != nullptr)
    return fail(EPROTONOSUPPORT);
  return g_socket(domain, type, protocol);
}

CXEMU_EXPORT(int, connect, (int fd, const sockaddr* peer, socklen_t length)) {
  Guest* guest = Guest::get();
  if (guest != nullptr && guest->tcp().before_connect(fd, peer, length)) guest->watcher_ensure();
  return g_connect(fd, peer, length);
}

CXEMU_EXPORT(int, bind, (int fd, const sockaddr* address, socklen_t length)) {
  const int result = g_bind(fd, address, length);
  if (result == 0) socket_accepted(fd);
  return result;
}

CXEMU_EXPORT(int, accept, (int fd, sockaddr* peer, socklen_t* length)) {
  return socket_accepted(g_accept(fd, peer, length));
}

CXEMU_EXPORT(int, accept4, (int fd, sockaddr* peer, socklen_t* length, int flags)) {
  return socket_accepted(g_accept4(fd, peer, length, flags));
}
