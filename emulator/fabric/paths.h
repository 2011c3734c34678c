// Where a fabric lives in the file system: BASE/cxemu-UID/NAME/, where BASE is $XDG_RUNTIME_DIR,
// else /dev/shm if that is memory of 1 GiB or more, else /tmp.
//   fabric      the shared file (fabric.h)
//   sys-HOST/   the sysfs tree that the programs of HOST see
#pragma once

#include <string>

namespace cxemu {

// Whether a name is valid for fabrics and hosts: 1..24 of [a-z A-Z 0-9 _ -], so that it is safe in
// paths.
bool name_valid(const std::string& name);

// The folder of all fabrics of this user, without a slash at the end.
std::string fabrics_dir();
std::string fabric_dir(const std::string& fabric);
std::string fabric_file(const std::string& fabric);
std::string host_sysfs_dir(const std::string& fabric_folder, const std::string& host);

// Makes a folder that only this user can use, with its parents. An existing one must belong to this
// user and be closed to others: /tmp and /dev/shm are shared, and the emulator maps and trusts the
// files in it.
bool private_dir_make(const std::string& dir, std::string* error);

}  // namespace cxemu
