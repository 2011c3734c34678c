// XRC domains. A domain can be opened under the name of a file; the kernel then shares it among all
// processes that open it so. Here a domain belongs to one open device: a second device that brings
// the same file is refused, because it would get a domain that is not shared.
#include <fcntl.h>
#include <rdma/ib_user_verbs.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "uverbs/command.h"

namespace cxemu {

XrcdFile::~XrcdFile() {
  close(claim_fd);
}

namespace {

// Claims the file while a domain of it is open on this NIC; the claim ends when its descriptor is
// closed. Returns -1 if another device holds the claim.
int file_claim(const Context& context, const struct stat& file) {
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const FabricNic& nic = context.fabric_nic();
  const int length = snprintf(
      name.sun_path + 1, sizeof name.sun_path - 1, "cxemu-xrcd-%x-%llx-%llx", nic.ipv4_be,
      static_cast<unsigned long long>(file.st_dev), static_cast<unsigned long long>(file.st_ino));
  const auto size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(length));
  if (bind(fd, reinterpret_cast<sockaddr*>(&name), size) == 0) return fd;
  close(fd);
  return -1;
}

const XrcdObject* same_file_find(Context& context, const struct stat& file) {
  const XrcdObject* found = nullptr;
  context.objects().each<XrcdObject>([&](const XrcdObject* object) {
    if (object->file && object->file->device == file.st_dev && object->file->inode == file.st_ino)
      found = object;
  });
  return found;
}

int domain_open(Context& context, const ib_uverbs_open_xrcd& request,
                std::unique_ptr<XrcdObject>* out) {
  const bool create = (request.oflags & O_CREAT) != 0;
  const int fd = static_cast<int>(request.fd);
  if (fd == -1) {
    if (!create) return EAGAIN;
    *out = std::make_unique<XrcdObject>(context.xrcd_number_next(), nullptr);
    return 0;
  }
  struct stat file;
  if (fstat(fd, &file) != 0) return EBADF;
  if (const XrcdObject* same = same_file_find(context, file)) {
    if ((request.oflags & O_EXCL) != 0) return EINVAL;
    *out = std::make_unique<XrcdObject>(same->number, same->file);
    return 0;
  }
  const int claim = file_claim(context, file);
  if (claim < 0) return EOPNOTSUPP;
  auto named = std::make_shared<XrcdFile>(file.st_dev, file.st_ino, claim);
  if (!create) return EAGAIN;
  *out = std::make_unique<XrcdObject>(context.xrcd_number_next(), std::move(named));
  return 0;
}

int open_xrcd(Context& context, const CommandIo& io) {
  ib_uverbs_open_xrcd request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  if ((request.oflags & ~uint32_t{O_CREAT | O_EXCL}) != 0) return EINVAL;
  std::unique_ptr<XrcdObject> object;
  if (const int error = domain_open(context, request, &object)) return error;
  ib_uverbs_open_xrcd_resp answer{};
  answer.xrcd_handle = context.objects().add(std::move(object));
  answer_write(io.core_out, answer);
  return 0;
}

int close_xrcd(Context& context, const CommandIo& io) {
  ib_uverbs_close_xrcd request;
  if (!request_read(io.core_in, &request)) return EOPNOTSUPP;
  const auto* object = context.objects().find<XrcdObject>(request.xrcd_handle);
  if (object == nullptr) return EINVAL;
  if (object->users != 0) return EBUSY;
  context.objects().remove(request.xrcd_handle);
  return 0;
}

constexpr Command kXrcCommands[] = {
    {IB_USER_VERBS_CMD_OPEN_XRCD, "open_xrcd", sizeof(ib_uverbs_open_xrcd),
     sizeof(ib_uverbs_open_xrcd_resp), 0, 0, open_xrcd},
    {IB_USER_VERBS_CMD_CLOSE_XRCD, "close_xrcd", sizeof(ib_uverbs_close_xrcd), 0, 0, 0, close_xrcd,
     kWorksWhenDead},
};

}  // namespace

std::span<const Command> xrc_commands() {
  return kXrcCommands;
}

}  // namespace cxemu
