// The objects of one thread: one or more queue pairs, with objects of their own or with those that
// all threads share. The dice decide which.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "plan.h"

namespace life {

// The objects that all threads share.
struct Shared {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
};

struct Address {
  uint32_t qpn = 0, psn = 0, rkey = 0;
  uint64_t memory = 0;
  ibv_gid gid{};

  std::string to_text() const;
  static bool parse(const std::string& text, Address* out);
};

class Objects {
 public:
  static constexpr uint64_t kReceive = 1ull << 32;  // this bit is in the wr_id of receives

  Objects(const Plan& plan, const Shared& shared, Dice dice, int gid_index)
      : plan_(plan), shared_(shared), dice_(dice), gid_index_(gid_index) {}
  ~Objects();
  Objects(const Objects&) = delete;
  Objects& operator=(const Objects&) = delete;

  // These functions return false when something failed that must work; problem() says what.
  bool make();
  bool connect(uint32_t qp, const Address& peer);
  bool shut();    // brings the QPs to ERR, which flushes everything
  bool rewind();  // brings the QPs to RESET and to INIT again
  bool post_receives(uint32_t count);
  bool post_send(uint32_t qp, uint32_t number, const Address& peer);
  // Destroys everything in a legal order that the dice draw. It also tries to destroy objects in
  // use, which must refuse and go on working.
  bool destroy();

  // Polls at most `out.size()` completions and returns their number, or -1 on failure. If there is
  // a completion channel, it waits for an event for a short time.
  int poll(std::span<ibv_wc> out);
  Address address(uint32_t qp) const;
  uint32_t qp_index(uint32_t qp_num) const;
  std::byte* out_slot(uint32_t qp, uint32_t number);
  std::byte* in_slot(uint32_t qp, uint32_t number);
  bool has_shared_receives() const { return srq_ != nullptr; }
  const std::string& problem() const { return problem_; }

 private:
  bool fail(const std::string& what, int error);
  bool cq_make();
  bool qp_make();
  bool to_init(ibv_qp* qp);
  uint32_t psn_draw();
  uint64_t mask_draw(const ibv_qp* qp);
  int poll_masked(std::span<ibv_wc> out);
  bool refuses(int result, const char* what);
  bool gone(int result, const char* what);

  const Plan& plan_;
  const Shared& shared_;
  Dice dice_;
  const int gid_index_;
  std::string problem_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  bool is_extended_ = false;
  uint32_t events_ = 0;
  ibv_srq* srq_ = nullptr;
  std::vector<ibv_qp*> qps_;
  std::vector<uint32_t> psns_;
  std::vector<uint64_t> masks_;  // by which each queue pair's wr_ids differ from what they mean
  std::vector<std::byte> out_, in_;
  ibv_mr *out_mr_ = nullptr, *in_mr_ = nullptr;
};

}  // namespace life
