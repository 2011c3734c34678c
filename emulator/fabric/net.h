// Picks the second byte of a fabric's addresses (127.NET.x.y), so that all fabrics that live on one
// machine at the same time, also those of other users, have different addresses.
//
// A file /tmp/.cxemu-net-NET that holds the path of the fabric's file claims a number. The claim is
// valid as long as the fabric's file exists.
#pragma once

#include <cstdint>
#include <string>

namespace cxemu {

inline constexpr uint32_t kNetMin = 2;
inline constexpr uint32_t kNetMax = 250;

// `claims_dir` is "/tmp" except in tests. Returns 0 and fills *error when all numbers are taken.
uint32_t net_claim(const std::string& claims_dir, const std::string& fabric_path,
                   std::string* error);
// The fabric file that a claim names; empty when there is no claim or it cannot be read.
std::string net_claim_owner(const std::string& claims_dir, uint32_t net);
void net_release(const std::string& claims_dir, uint32_t net, const std::string& fabric_path);

}  // namespace cxemu
