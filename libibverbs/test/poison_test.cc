// Every verb on a virtual object has to arrive at the provider. The double's objects are poison for
// the stock library, so a verb that takes one there crashes this test.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <set>

#include "double.h"

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace shift::test {
namespace {

// Verbs that take no virtual object, so nothing can arrive at the provider.
const std::set<int> kWithoutObject = {
    k_get_device_list,  k_free_device_list, k_get_device_name,        k_get_device_guid,
    k_get_device_index, k_import_device,    k_init_ah_from_wc,        k_create_ah_from_wc,
    k_event_type_str,   k_wc_status_str,    k_resolve_eth_l2_from_gid};

class PoisonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    list_ = ibv_get_device_list(&count_);
    ASSERT_NE(list_, nullptr);
    ASSERT_EQ(count_, 2) << "the stock library does not see the devices of SYSFS_PATH";
    context_ = ibv_open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
    expect(k_open_device);
    pd_ = ibv_alloc_pd(context_);
    expect(k_alloc_pd);
    ASSERT_NE(pd_, nullptr);
  }
  void TearDown() override { ibv_free_device_list(list_); }

  void expect(Verb verb) {
    EXPECT_EQ(last_verb(context_), verb);
    arrived_.insert(verb);
    context_->num_comp_vectors = 0;
  }
  void expect(Verb verb, ssize_t result) {
    EXPECT_EQ(result, verb);
    expect(verb);
  }

  void call_device();
  void call_memory();
  void call_completion();
  void call_qp();
  void call_srq_and_ah();

  int count_ = -1;
  ibv_device** list_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  std::set<int> arrived_;
  char buffer_[4096] = {};
};

void PoisonTest::call_device() {
  ibv_device_attr device_attr;
  ibv_gid gid;
  ibv_gid_entry entry;
  __be16 pkey;
  expect(k_query_device, ibv_query_device(context_, &device_attr));
  expect(k_query_gid, ibv_query_gid(context_, 1, 0, &gid));
  expect(k_query_gid_ex, _ibv_query_gid_ex(context_, 1, 0, &entry, 0, sizeof(entry)));
  expect(k_query_gid_table, _ibv_query_gid_table(context_, &entry, 1, 0, sizeof(entry)));
  expect(k_query_pkey, ibv_query_pkey(context_, 1, 0, &pkey));
  expect(k_get_pkey_index, ibv_get_pkey_index(context_, 1, 0xffff));
  ibv_async_event event;
  expect(k_get_async_event, ibv_get_async_event(context_, &event));
}

void PoisonTest::call_memory() {
  ibv_mr* mr = ibv_reg_mr(pd_, buffer_, sizeof(buffer_), 0);
  expect(k_reg_mr);
  EXPECT_EQ(mr, ibv_reg_mr_iova(pd_, buffer_, sizeof(buffer_), 0, 0));
  expect(k_reg_mr_iova);
  EXPECT_EQ(mr, ibv_reg_mr_iova2(pd_, buffer_, sizeof(buffer_), 0, 0));
  expect(k_reg_mr_iova2);
  EXPECT_EQ(mr, ibv_reg_dmabuf_mr(pd_, 0, 4096, 0, 0, 0));
  expect(k_reg_dmabuf_mr);
  EXPECT_EQ(mr, ibv_import_mr(pd_, 1));
  expect(k_import_mr);
  expect(k_rereg_mr, ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd_, buffer_, 1, 0));
  ibv_unimport_mr(mr);
  expect(k_unimport_mr);
  expect(k_dereg_mr, ibv_dereg_mr(mr));
  ibv_dm* dm = ibv_import_dm(context_, 1);
  expect(k_import_dm);
  ibv_unimport_dm(dm);
  expect(k_unimport_dm);
  EXPECT_EQ(pd_, ibv_import_pd(context_, 1));
  expect(k_import_pd);
  ibv_unimport_pd(pd_);
  expect(k_unimport_pd);
}

void PoisonTest::call_completion() {
  ibv_comp_channel* channel = ibv_create_comp_channel(context_);
  expect(k_create_comp_channel);
  ibv_cq* cq = ibv_create_cq(context_, 16, nullptr, channel, 0);
  expect(k_create_cq);
  expect(k_resize_cq, ibv_resize_cq(cq, 32));
  void* cq_context = nullptr;
  expect(k_get_cq_event, ibv_get_cq_event(channel, &cq, &cq_context));
  ibv_ack_cq_events(cq, 1);
  expect(k_ack_cq_events);
  ibv_async_event event = {};
  event.element.cq = cq;
  event.event_type = IBV_EVENT_CQ_ERR;
  ibv_ack_async_event(&event);
  expect(k_ack_async_event);
  expect(k_destroy_cq, ibv_destroy_cq(cq));
  expect(k_destroy_comp_channel, ibv_destroy_comp_channel(channel));
}

void PoisonTest::call_qp() {
  ibv_qp_init_attr init = {};
  ibv_qp_attr attr = {};
  ibv_gid gid = {};
  ibv_ece ece = {};
  ibv_qp* qp = ibv_create_qp(pd_, &init);
  expect(k_create_qp);
  EXPECT_EQ(&ibv_qp_to_qp_ex(qp)->qp_base, qp);
  expect(k_qp_to_qp_ex);
  expect(k_modify_qp, ibv_modify_qp(qp, &attr, IBV_QP_STATE));
  expect(k_query_qp, ibv_query_qp(qp, &attr, IBV_QP_STATE, &init));
  expect(k_query_qp_data_in_order, ibv_query_qp_data_in_order(qp, IBV_WR_SEND, 0));
  expect(k_query_ece, ibv_query_ece(qp, &ece));
  expect(k_set_ece, ibv_set_ece(qp, &ece));
  expect(k_attach_mcast, ibv_attach_mcast(qp, &gid, 0));
  expect(k_detach_mcast, ibv_detach_mcast(qp, &gid, 0));
  expect(k_destroy_qp, ibv_destroy_qp(qp));
}

void PoisonTest::call_srq_and_ah() {
  ibv_srq_init_attr init = {};
  ibv_srq_attr attr = {};
  ibv_srq* srq = ibv_create_srq(pd_, &init);
  expect(k_create_srq);
  expect(k_modify_srq, ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
  expect(k_query_srq, ibv_query_srq(srq, &attr));
  expect(k_destroy_srq, ibv_destroy_srq(srq));
  ibv_ah_attr ah_attr = {};
  ibv_ah* ah = ibv_create_ah(pd_, &ah_attr);
  expect(k_create_ah);
  ibv_wc wc = {};
  ibv_grh grh = {};
  EXPECT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &grh, &ah_attr), 0);
  EXPECT_EQ(ah, ibv_create_ah_from_wc(pd_, &wc, &grh, 1));
  expect(k_create_ah);
  expect(k_destroy_ah, ibv_destroy_ah(ah));
}

TEST_F(PoisonTest, every_verb_on_a_virtual_object_arrives_at_the_provider) {
  call_device();
  ibv_port_attr port_attr;
  expect(k_query_port,
         ibv_query_port(context_, 1, reinterpret_cast<_compat_ibv_port_attr*>(&port_attr)));
  call_memory();
  call_completion();
  call_qp();
  call_srq_and_ah();
  expect(k_dealloc_pd, ibv_dealloc_pd(pd_));
  expect(k_close_device, ibv_close_device(context_));
  for (int verb = kVerbFirst + 1; verb <= k_query_gid_table; ++verb) {
    EXPECT_TRUE(arrived_.count(verb) != 0 || kWithoutObject.count(verb) != 0)
        << "verb " << verb - kVerbFirst << " of SHIFT_STOCK_FUNCTIONS is not tested";
  }
}

// The program's struct may end where the old struct did.
TEST_F(PoisonTest, old_query_port_fills_no_more_than_the_old_struct) {
  ibv_port_attr attr;
  memset(&attr, 0, sizeof(attr));
  ibv_query_port(context_, 1, reinterpret_cast<_compat_ibv_port_attr*>(&attr));
  EXPECT_EQ(attr.phys_state, 0x11);
  EXPECT_EQ(attr.port_cap_flags2, 0);
}

TEST_F(PoisonTest, acknowledged_events_go_where_their_object_belongs) {
  ibv_qp qp = {};
  ibv_srq srq = {};
  ibv_wq wq = {};
  qp.context = srq.context = wq.context = context_;
  const struct {
    ibv_event_type type;
    void* object;
  } kEvents[] = {{IBV_EVENT_QP_FATAL, &qp},      {IBV_EVENT_QP_REQ_ERR, &qp},
                 {IBV_EVENT_QP_ACCESS_ERR, &qp}, {IBV_EVENT_COMM_EST, &qp},
                 {IBV_EVENT_SQ_DRAINED, &qp},    {IBV_EVENT_PATH_MIG, &qp},
                 {IBV_EVENT_PATH_MIG_ERR, &qp},  {IBV_EVENT_QP_LAST_WQE_REACHED, &qp},
                 {IBV_EVENT_SRQ_ERR, &srq},      {IBV_EVENT_SRQ_LIMIT_REACHED, &srq},
                 {IBV_EVENT_WQ_FATAL, &wq}};
  for (const auto& [type, object] : kEvents) {
    ibv_async_event event = {};
    event.event_type = type;
    event.element.qp = static_cast<ibv_qp*>(object);
    ibv_ack_async_event(&event);
    expect(k_ack_async_event);
  }
  // These events name no object; the union holds a port number.
  for (ibv_event_type type : {IBV_EVENT_DEVICE_FATAL, IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE}) {
    ibv_async_event event = {};
    event.event_type = type;
    event.element.port_num = 1;
    ibv_ack_async_event(&event);
    EXPECT_EQ(last_verb(context_), 0);
  }
}

// The front of librdmacm asks about QPs that may have been destroyed.
TEST_F(PoisonTest, nobody_looks_behind_a_queue_pair_that_librdmacm_names) {
  void* unmapped = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (const char* name : {"shift_qp_is_protected", "shift_qp_has_left"}) {
    auto* ask = reinterpret_cast<bool (*)(ibv_qp*)>(dlsym(RTLD_DEFAULT, name));
    ASSERT_NE(ask, nullptr) << name;
    EXPECT_FALSE(ask(static_cast<ibv_qp*>(unmapped)));
  }
  munmap(unmapped, 4096);
}

TEST_F(PoisonTest, virtual_device_answers_for_its_nic_and_real_ones_for_themselves) {
  EXPECT_STREQ(ibv_get_device_name(list_[0]), "mlx5_0");
  EXPECT_EQ(ibv_get_device_guid(list_[0]), htobe64(0x0002c90300000000));
  EXPECT_STREQ(ibv_get_device_name(list_[1]), "mlx5_1");
  EXPECT_EQ(ibv_get_device_guid(list_[1]), htobe64(0x0002c90300000001));
  EXPECT_EQ(ibv_get_device_index(list_[0]), ibv_get_device_index(list_[1]));
}

}  // namespace
}  // namespace shift::test
