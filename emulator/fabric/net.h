// Picks the second byte of a fabric's addresses (127.NET.x.y), so that fabrics that live on one
// machine at the same time, also those of other users, never share an address.
//
// A number is claimed by a file /tmp/.cxemu-net-NET that holds the path of the fabric's file. The
// claim stands as long as that file exists.
#pragma once

#include <cstdint>
#include <string>

namespace cxemu {

inline constexpr uint32_t kNetMin = 2;
inline constexpr uint32_t kNetMax = 250;

// `claims_dir` is "/tmp" outside of tests. Returns 0 and fills *error when all are taken.
uint32_t net_claim(const std::string& claims_dir, const std::string& fabric_path,
                   std::string* error);
// The fabric file that a claim names; empty when there is no claim, or it cannot be read.
std::string net_claim_owner(const std::string& claims_dir, uint32_t net);
void net_release(const std::string& claims_dir, uint32_t net, const std::string& fabric_path);

}  // namespace cxemu
