// Checks of the paths between NICs: packets of the largest size come through.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "rig.h"
#include "topics.h"
#include "trouble.h"
#include "wire.h"

namespace shift::verify {

namespace {

// Writes over the path, in both directions, with packets of the largest size.
Outcome path_try(const Subject& subject, Wire& wire) {
  constexpr uint8_t kMark = 0x5a;
  const Device unused(subject.nic);
  const int mtu = mtu_bytes(unused.port.active_mtu);
  std::string problem;
  // The largest packets, and if they do not come through, small ones.
  for (const uint32_t cap :
       {static_cast<uint32_t>(IBV_MTU_4096), static_cast<uint32_t>(IBV_MTU_1024),
        static_cast<uint32_t>(IBV_MTU_256)}) {
    Device device(subject.nic);
    device.port.active_mtu = static_cast<ibv_mtu>(std::min<uint32_t>(device.port.active_mtu, cap));
    Memory memory(device, 65536);
    End end(device);
    wire.say({{"address", end.address().to_json()}});
    const auto peer = wire.hear();
    const Address to = Address::from_json(peer.at("address"));
    end.connect(to, {.timeout = 14, .retries = 3});
    wire.say({{"ready", true}});
    wire.hear();
    const auto size = static_cast<uint32_t>(
        3 * mtu_bytes(std::min<uint32_t>(to.mtu, device.port.active_mtu)) + 1);
    std::memset(memory.at(), kMark, size);
    Request request{.id = 1,
                    .is_signaled = true,
                    .from = memory.address(),
                    .lkey = memory.lkey(),
                    .size = size,
                    .to = peer.value("memory", uint64_t{0}),
                    .rkey = peer.value("rkey", 0u)};
    const auto run = [&] {
      end.post(request);
      const auto got =
          End::poll(end.send_cq, milliseconds(1500), [](const auto& all) { return !all.empty(); });
      if (!got.empty() && got.front().status == IBV_WC_SUCCESS) return true;
      if (problem.empty())
        problem = got.empty() ? "no answer" : ibv_wc_status_str(got.front().status);
      return false;
    };
    bool is_right = run();
    if (is_right) {
      request.opcode = IBV_WR_RDMA_READ;
      request.from = memory.address(32768);
      is_right = run();
      for (uint32_t i = 0; i < size && is_right; i++) {
        if (memory.at(32768)[i] != kMark) problem = "data came back changed", is_right = false;
      }
    }
    wire.say({{"again", !is_right}});
    if (!is_right) continue;
    const int passed = mtu_bytes(std::min<uint32_t>(to.mtu, device.port.active_mtu));
    wire.say({{"over", true}});
    if (!problem.empty())
      return failure(text("packets of %d bytes come through, and of %d do not (%s)", passed, mtu,
                          problem.c_str()));
    const std::string seen = text("packets of %d bytes come through, both ways", passed);
    return to.mtu != static_cast<uint32_t>(unused.port.active_mtu)
               ? warning(seen +
                         text("; one end's MTU is %d, the other's %d", mtu, mtu_bytes(to.mtu)))
               : ok(seen);
  }
  return failure("nothing comes through: " + problem);
}

}  // namespace

Outcome ask_path(const Subject& subject, Wire& wire) {
  Outcome out;
  try {
    out = path_try(subject, wire);
  } catch (const Trouble& trouble) {
    out = failure(trouble.what());
  }
  if (out.verdict != Verdict::kFailure || subject.is_straight) return out;
  out.verdict = Verdict::kWarning;
  out.means =
      "This path across rails is no backup. One fault is masked all the same, and two at once, one "
      "at each end, are not.";
  out.advice = subject.is_one_host
                   ? "Nothing on one host, whose kernel may not carry this; look at it between two."
                   : "Set up routes between the rails, if two faults at once shall be masked.";
  return out;
}

void answer_path(const Subject& subject, Wire& wire) {
  for (;;) {
    Device device(subject.nic);
    const auto asked = wire.hear();
    if (asked.contains("over")) return;
    Memory memory(device, 65536);
    End end(device);
    const Address own = end.address();
    end.connect(Address::from_json(asked.at("address")));
    wire.say({{"address", own.to_json()}, {"memory", memory.address()}, {"rkey", memory.rkey()}});
    wire.hear();
    wire.say({{"ready", true}});
    wire.hear();
  }
}

}  // namespace shift::verify
