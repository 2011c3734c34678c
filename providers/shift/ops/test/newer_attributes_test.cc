// Attributes that only younger headers know are refused before the stock library sees them.
#include <cerrno>
#include <functional>

#include "ops/test/opened.h"

namespace shift::ops {
namespace {

class NewerAttributes : public Opened {
 protected:
  NewerAttributes() {
    calls = 0;
    verbs_context& v = first_.verbs;
    v.create_cq_ex = [](ibv_context*, ibv_cq_init_attr_ex*) { return called<ibv_cq_ex>(); };
    v.create_qp_ex = [](ibv_context*, ibv_qp_init_attr_ex*) { return called<ibv_qp>(); };
    v.create_srq_ex = [](ibv_context*, ibv_srq_init_attr_ex*) { return called<ibv_srq>(); };
    v.create_wq = [](ibv_context*, ibv_wq_init_attr*) { return called<ibv_wq>(); };
    v.alloc_parent_domain = [](ibv_context*, ibv_parent_domain_init_attr*) {
      return called<ibv_pd>();
    };
    v.modify_cq = [](ibv_cq*, ibv_modify_cq_attr*) {
      calls++;
      return EPERM;
    };
  }
  template <typename Object>
  static Object* called() {
    calls++;
    errno = EPERM;
    return nullptr;
  }
  // `make` fails, and sets errno to the stock library's own error if it gets there.
  void expect_known(uint64_t known, const std::function<const void*(uint64_t)>& make) {
    calls = 0;
    EXPECT_EQ(make(known), nullptr);
    EXPECT_EQ(errno, EPERM);
    EXPECT_EQ(calls, 1) << "all that the headers know";
    for (const uint64_t newer : {known + 1, uint64_t{1} << 30}) {
      errno = 0;
      EXPECT_EQ(make(newer), nullptr);
      EXPECT_EQ(errno, EOPNOTSUPP);
      EXPECT_EQ(calls, 1) << "the stock library was called";
    }
  }
  verbs_context& verbs() { return *verbs_get_ctx(context_); }

  static inline int calls;
};

TEST_F(NewerAttributes, OfCompletionQueuesAreRefused) {
  expect_known(3, [&](uint64_t mask) {
    ibv_cq_init_attr_ex init{};
    init.cqe = 1;
    init.comp_mask = static_cast<uint32_t>(mask);
    return verbs().create_cq_ex(context_, &init);
  });
  expect_known(0xfff, [&](uint64_t flags) {
    ibv_cq_init_attr_ex init{};
    init.cqe = 1;
    init.wc_flags = flags > 0xfff ? flags << 10 : flags;  // above 32 bits, too
    return verbs().create_cq_ex(context_, &init);
  });
  ibv_cq* cq = create_cq(context_, 10, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  expect_known(1, [&](uint64_t mask) {
    ibv_modify_cq_attr attr{};
    attr.attr_mask = static_cast<uint32_t>(mask);
    errno = modify_cq(cq, &attr);
    return nullptr;
  });
  EXPECT_EQ(destroy_cq(cq), 0);
}

TEST_F(NewerAttributes, OfWhatIsMadeOfADomainAreRefused) {
  ibv_pd* pd = alloc_pd(context_);
  ASSERT_NE(pd, nullptr);
  expect_known(0x7f, [&](uint64_t mask) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = IBV_QPT_RC;
    init.pd = pd;
    init.comp_mask = static_cast<uint32_t>(mask);
    return create_qp_ex(context_, &init);
  });
  expect_known(0x1f, [&](uint64_t mask) {
    ibv_srq_init_attr_ex init{};
    init.pd = pd;
    init.comp_mask = static_cast<uint32_t>(mask);
    return verbs().create_srq_ex(context_, &init);
  });
  expect_known(1, [&](uint64_t mask) {
    ibv_wq_init_attr init{};
    init.pd = pd;
    init.comp_mask = static_cast<uint32_t>(mask);
    return verbs().create_wq(context_, &init);
  });
  expect_known(3, [&](uint64_t mask) {
    ibv_parent_domain_init_attr init{};
    init.pd = pd;
    init.comp_mask = static_cast<uint32_t>(mask);
    return verbs().alloc_parent_domain(context_, &init);
  });
  EXPECT_EQ(dealloc_pd(pd), 0);
  worker_.run();
}

}  // namespace
}  // namespace shift::ops
