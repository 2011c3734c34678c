/* The two ends and the world between them: requests, QPs, paths and the control channel.

   Index 0 is the leader, 1 the follower. Arrays by end hold what that end knows or does; arrays
   by end and path, X(e, p), belong to its QP on that path. */

#define PEER(e) (1 - (e))
#define X(e, p) ((e) * PATHS + (p))
#define NO_PATH 7

/* ---- requests. Each end's journal is full from the start; a request counts as posted when the
   application posts it, or the pump does so. */
#define N(e) ((e) == 0 -> N_A : N_B)
#define MASK(e) ((e) == 0 -> NOTIFY_A : NOTIFY_B)
#define IS_NOTIFICATION(e, i) ((MASK(e) >> (i)) & 1)
#define IS_ATOMIC(e, i) ((((e) == 0 -> ATOMIC_A : ATOMIC_B) >> (i)) & 1)
/* Number of notifications among the first i requests (i <= 4). */
#define BIT(e, n, i) ((MASK(e) >> (n)) & ((i) > (n)))
#define NOTIFICATIONS(e, i) (BIT(e, 0, i) + BIT(e, 1, i) + BIT(e, 2, i) + BIT(e, 3, i))

byte posted[2];   /* requests before this one have been posted on some path */
byte done[2];     /* completed with success, as the shell counts */
bool over[2];     /* all others have been completed with an error */

/* What really happened, for the properties only; indexed by the end that sent. */
byte told[2];     /* successes that the application was given */
byte ran[2];      /* requests before this one were executed at least once */
byte notified[2]; /* notifications executed; also the receiver's counter */
bool atomic_ran[2];

/* ---- QPs and paths */
bool up[PATHS];          /* the path carries packets */
bool dead[2 * PATHS];    /* by end and member: the device died */
bool rts[2 * PATHS];     /* the QP is connected and not in ERR */
byte generation[PATHS];  /* of the newest connection of the path */
bool joined[PATHS];      /* both QPs are in that generation */
/* The handshake at the leader: 0 nothing, 1 offered and accepted, 2 ready in both directions. */
byte shake[PATHS];
/* At the receiver's QP: the request it expects next, and the end of what was sent on its
   generation. The requests between may arrive at any time until the QP is in ERR, even after the
   sender has left the path (late packets), or never (loss). */
byte expects[2 * PATHS];
byte sent[2 * PATHS];
/* At the sender: how many requests the peer executed on the connection in use; their successes
   may be polled. */
byte acked[2];

#ifdef CROSS
#define MEMBER(e, p) ((p) == 2 -> ((e) == 0 -> 0 : 1) : (p))
#else
#define MEMBER(e, p) (p)
#endif
#define DEAD(e, p) dead[X(e, MEMBER(e, p))]
#define GOOD(p) (up[p] && !DEAD(0, p) && !DEAD(1, p))
#define USES_MEMBER_OF(e, p) (at[e] != NO_PATH && MEMBER(e, at[e]) == MEMBER(e, p))
#define SHARES(q, p) ((q) != NO_PATH && (MEMBER(0, q) == MEMBER(0, p) || MEMBER(1, q) == MEMBER(1, p)))

/* ---- the shell's state (Binding and Group in the code) */
byte st[2];
byte epoch[2];
byte at[2];         /* the path committed to */
bool stands[2];     /* our receives are posted on it */
byte next_recv[2];  /* the receive that the next notification consumes */
byte fence[2];      /* 1: requested, 2: the QP is in ERR and its completions are being drained */
bool parked[2];
bool deadline[2];
bool seeking[2];
bool keys[2];       /* requested */
bool watch[2];      /* a drain is being watched */
byte count[2];      /* our counter when the fence was done */
byte peer_count[2]; /* the peer's counter in the current round */
byte target[2];
byte target_generation[2];

bool no_region[2];  /* a receive's memory is not registered on the other NICs */

/* ---- control channel. A message that was sent may arrive at any time, in any order and any
   number of times (two connections, and C11), until the channel is lost, so a set is enough. It
   has one bit per epoch that a message may carry, and is indexed by the end that sent the
   message. */
EPOCH_SET net_switch[2];
EPOCH_SET net_progress[2];
EPOCH_SET net_refuse[2];
EPOCH_SET net_gone[2];   /* Refuse by an end that is closed */
bool net_close[2];
byte net_drain;     /* one bit per attempt; sent by the leader */
byte net_cancel;
byte net_drained;   /* sent by the follower */
byte told_count[2 * (EPOCHS + 1)]; /* the counter in Progress */
byte told_path[EPOCHS + 1];
byte told_generation[EPOCHS + 1];
bool channel[2];    /* this end has a connection */
bool lost[2];       /* and does not know yet that it is gone */
bool met[2];        /* the ends have found each other at some time */

/* ---- the way back */
byte attempt;             /* number of the leader's newest drain */
byte attempt_epoch[DRAINS + 1];
byte seen_attempt;        /* the follower's */
bool seen_cancel;         /* that attempt was cancelled */
bool answered;            /* the follower has sent Drained */
bool peer_drained;        /* the leader has received it */

/* ---- remaining budgets */
byte cuts = CUTS;
byte heals = HEALS;
byte deaths = DEATHS;
byte scares = SCARES;
byte losses = LOSSES;
byte closes = CLOSES;
byte app_errors = APP_ERRORS;
byte unproven = UNPROVEN;
byte keyless = KEYLESS;

/* Scratch variables of one step; they are zero between steps, so that they add no states. */
byte ev;
byte from_epoch;  /* of the message that is being handled */
bool by_message;
byte k;
byte follow_up;
bool stop;

/* Names of the clauses in failed assertions: the checker prints the expression. */
bool C1, C2, C3, C4, C5, C6, C7, C11, impossible_cell, livelock, receives_stand, one_path;

/* ---- the data path */

/* Prints to trails; trail.sh replaces numbers by names. */
#define SAY printf

/* A request of end e completes with success. */
inline complete(e) {
  SAY("%d: request %d completes\n", e, done[e]);
  assert(C1 || told[e] == done[e]);
  assert(C4 || done[e] < ran[e]);
  done[e]++;
  told[e]++
}

/* The application posts a request, or the pump posts a parked one. */
#define CAN_POST(e) (!parked[e] && !over[e] && at[e] != NO_PATH && rts[X(e, at[e])] && \
                     !DEAD(e, at[e]) && posted[e] < N(e))
inline post(e) {
  SAY("%d: posts request %d on path %d\n", e, posted[e], at[e]);
  posted[e]++;
  if
  :: joined[at[e]] -> sent[X(PEER(e), at[e])] = posted[e]
  :: else -> skip /* it fits no connection */
  fi
}

/* A success is polled, by the application or while draining. */
#define CAN_POLL(e) (at[e] != NO_PATH && !over[e] && done[e] < acked[e])

/* A packet arrives at the QP of end r on path p. */
#define CAN_ARRIVE(r, p) (rts[X(r, p)] && !DEAD(r, p) && expects[X(r, p)] < sent[X(r, p)])
inline arrive(r, p, s) {
  k = expects[X(r, p)];
  SAY("%d: request %d arrives on path %d\n", r, k, p);
  assert(receives_stand || (at[r] == p && stands[r]));
  if
  :: IS_NOTIFICATION(s, k) ->
    assert(C2 || NOTIFICATIONS(s, k) == notified[s]);
    assert(C2 || next_recv[r] == notified[s]);
    notified[s]++;
    next_recv[r]++
  :: else ->
    assert(C3 || notified[s] <= NOTIFICATIONS(s, k));
    if
    :: IS_ATOMIC(s, k) ->
      assert(C5 || !atomic_ran[s]);
      atomic_ran[s] = true
    :: else -> skip
    fi
  fi;
  if
  :: ran[s] <= k -> ran[s] = k + 1
  :: else -> assert(C5 || !NEVER_TWICE)
  fi;
  expects[X(r, p)]++;
  if
  :: joined[p] && at[s] == p -> acked[s] = expects[X(r, p)]
  :: else -> skip /* the sender has left: the request was executed, but the sender does not know */
  fi;
  k = 0
}

/* An end in this position can notice that its path does not work: by an event of its port or
   device, or because a request is not answered. */
#define TROUBLE(e) (at[e] != NO_PATH && \
                    (!GOOD(at[e]) || (posted[e] > done[e] && \
                                      (!rts[X(PEER(e), at[e])] || !joined[at[e]]))))
