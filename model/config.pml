/* What a configuration may set; check.sh names the configurations. Every fault has a budget, so
   each run is finite, and a run that does not end is a finding. */

/* Requests: how many each end posts, which of them are notifications and atomics (bit i: the i-th
   one). The leader sends a silent WRITE and then a notification, the follower one notification. */
#ifndef N_A
#define N_A 2
#endif
#ifndef NOTIFY_A
#define NOTIFY_A 2
#endif
#ifndef N_B
#define N_B 1
#endif
#ifndef NOTIFY_B
#define NOTIFY_B 1
#endif
#ifndef ATOMIC_A
#define ATOMIC_A 0
#endif
#ifndef ATOMIC_B
#define ATOMIC_B 0
#endif

/* Path p joins member p of either end. CROSS adds path 2 from the leader's member 0 to the
   follower's member 1; a member's QP serves one path at a time. */
#ifdef CROSS
#define PATHS 3
#else
#ifndef PATHS
#define PATHS 2
#endif
#endif
#ifndef FIRST_PATH
#define FIRST_PATH 0 /* where the traffic begins */
#endif
#ifndef SPARE
#define SPARE 1 /* a spare is ready from the start */
#endif
#ifndef BIND
#define BIND 0 /* 1: the ends have not met yet; 2: and one end may give up the search */
#endif

/* Budgets. */
#ifndef CUTS
#define CUTS 0 /* a path stops working */
#endif
#ifndef HEALS
#define HEALS 0 /* a stopped path works again */
#endif
#ifndef DEATHS
#define DEATHS 0 /* a device dies for good, without flushes */
#endif
#ifndef SCARES
#define SCARES 0 /* an end takes a good path for broken: a burst of losses */
#endif
#ifndef DRAINS
#define DRAINS 0 /* how often the way back is tried */
#endif
#ifndef ORDERS
#define ORDERS 0 /* 1: an operator may have the traffic leave a path that works: any other is better */
#endif
#ifndef LOSSES
#define LOSSES 0 /* the control channel breaks, with all messages in flight */
#endif
#ifndef RECONNECT
#define RECONNECT 1 /* 0: the channel never comes back */
#endif
#ifndef CLOSES
#define CLOSES 0 /* an application destroys or resets its QP */
#endif
#ifndef APP_ERRORS
#define APP_ERRORS 0 /* an error that the application itself causes */
#endif
#ifndef UNPROVEN
#define UNPROVEN 0 /* a fence cannot be proven */
#endif
#ifndef KEYLESS
#define KEYLESS 0 /* a key of the replay is unknown */
#endif
#ifndef EARLY_DEADLINE
#define EARLY_DEADLINE 0 /* 0: deadlines are the last resort; 1: they may fire whenever they run */
#endif

/* A failure while a path is good (C7) can only be excused by an open atomic, an error of the
   application, or a budget below. */
#ifndef MAY_FAIL
#define MAY_FAIL (CLOSES || APP_ERRORS || UNPROVEN || KEYLESS || EARLY_DEADLINE || \
                  !RECONNECT || BIND == 2 || ((ATOMIC_A || ATOMIC_B) && (CUTS || SCARES)))
#endif
/* Without a fault of a path no request runs twice. */
#define NEVER_TWICE (CUTS + SCARES + DEATHS == 0)

/* 1: check the final consequence of a missing rule, not the packet that first breaks it. */
#ifndef LENIENT
#define LENIENT 0
#endif

/* This many epochs are a livelock (6, 8 or, for traces, 16). */
#ifndef EPOCHS
#define EPOCHS 6
#endif
#if EPOCHS > 8
#define EPOCH_SET int
#else
#define EPOCH_SET byte
#endif

/* What a trace adds (trace.pml): each event that does something is compared with the record, and
   the record decides what this model leaves open. */
#ifndef RECORDED
#define RECORDED(event)
#define NEXT_IS(event) false
#define END_PROVIDED
#endif

/* How long the follower stays parked after it has sent Drained: until the leader can no longer
   begin a round because of that message, or until the leader has begun one, and its Switch says
   so. So the follower's watch must outlast the leader's. LATE_SWITCH: a network that is down for
   long keeps the Switch from arriving in time. By then the leader's side is shut, and of the
   requests posted only an atomic would be lost. */
#ifndef LATE_SWITCH
#define LATE_SWITCH 0
#endif
#define DRAIN_MAY_END(e) \
  ((e) == 0 || !answered || !RECONNECT || \
   (st[0] != S_draining && epoch[0] == epoch[1]) || \
   (LATE_SWITCH && st[0] != S_draining && st[0] != S_fencing && st[0] != S_fencing_targeted))
