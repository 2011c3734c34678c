/* What stack.c uses of libibverbs' own header, in our own words, for tests. */
#ifndef TEST_IBVERBS_H
#define TEST_IBVERBS_H

#include <infiniband/driver.h>

#define PFX "test: "

struct verbs_ex_private {
  struct verbs_context_ops ops;
};

extern const struct verbs_context_ops verbs_dummy_ops;
void verbs_set_ops(struct verbs_context* context, const struct verbs_context_ops* ops);
void ibverbs_device_put(struct ibv_device* device);

static inline const struct verbs_context_ops* get_ops(struct ibv_context* context) {
  return &verbs_get_ctx(context)->priv->ops;
}

struct list_node {
  struct list_node *next, *before;
};
#define LIST_HEAD(name) struct list_node name = {&name, &name}
static inline void list_add(struct list_node* head, struct list_node* node) {
  node->next = head->next;
  node->before = head;
  head->next->before = node;
  head->next = node;
}
static inline void list_del(struct list_node* node) {
  node->before->next = node->next;
  node->next->before = node->before;
}
/* The node is the first member of its entry, as in stack.c. */
#define list_for_each(head, entry_, member)                                      \
  for (entry_ = (void*)(head)->next; (struct list_node*)(void*)entry_ != (head); \
       entry_ = (void*)((struct list_node*)(void*)entry_)->next)

#endif
