// Proves in one process, without verbs, that shift-nccl's judge reports what is planted.
#pragma once

namespace traffic::nccl {

// Returns 0 when every corruption was reported and nothing else.
int selftest();

}  // namespace traffic::nccl
