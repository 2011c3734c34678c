// The JSON text in which one process tells the other what the traffic is. It is not in options.h,
// because few files need it and it takes long to compile.
#pragma once

#include <nlohmann/json.hpp>

#include "options.h"

namespace traffic {

NLOHMANN_JSON_SERIALIZE_ENUM(Op, {{Op::kWrite, "write"},
                                  {Op::kWriteImm, "write_imm"},
                                  {Op::kSend, "send"},
                                  {Op::kSendImm, "send_imm"},
                                  {Op::kRead, "read"},
                                  {Op::kAtomic, "atomic"},
                                  {Op::kMixed, "mixed"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Api, {{Api::kClassic, "classic"}, {Api::kWr, "wr"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Cqs, {{Cqs::kClassic, "classic"},
                                   {Cqs::kExtended, "extended"},
                                   {Cqs::kStamped, "stamped"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Credits, {{Credits::kTcp, "tcp"}, {Credits::kVerbs, "verbs"}})

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Traffic, op, messages, duration_ms, until_stop, size,
                                   random_size, qps, depth, signal_every, inline_max, batch, sges,
                                   rate, events, bidirectional, receiver_rtr, sig_all, srq, one_cq,
                                   short_cq, api, cqs, credits, seed, quiet_ms, rnr_retry,
                                   qp_timeout, retry_count)

}  // namespace traffic
