/* SHIFT's protocol as in docs/protocol.md and docs/decisions/0006: two ends, each running the table
   of the failure state machine, over paths and a control channel that fail. README.md says what is
   checked and how. */
#include "config.pml"
#ifndef JUDGE
#define JUDGE run judge()
#endif
#include "table.pml"
#include "world.pml"
#include "shell.pml"

/* For each event, the states in which it does something, one bit each. A step that changes nothing
   is no step, so an end that can only receive copies counts as stuck. Constant after the first
   step. */
hidden int live[EVENTS];
#define LIVE(e, event) ((live[event] >> st[e]) & 1)

#define IS_OVER(e) (st[e] == S_failed || st[e] == S_closed)
/* The end answers everything with a refusal, and has sent this refusal already. */
#ifndef HAS_REFUSED
#define HAS_REFUSED(e, ep) ((IS_OVER(e) || st[e] == S_unbound) && \
                            (((net_refuse[e] | net_gone[e]) >> (ep)) & 1))
#endif

/* Selects the event of a message by its epoch. */
#define BY_EPOCH(ep, next, current) \
  ((ep) > epoch[me] -> (next) : ((ep) == epoch[me] -> (current) : E_peer_message_stale))
#define SWITCH_EVENT(ep) BY_EPOCH(ep, E_peer_switch_next, E_peer_switch_current)
/* The leader's Progress names a target; the follower's cannot be ahead of the leader. */
#define PROGRESS_EVENT(ep) (me == 1 -> \
                            BY_EPOCH(ep, E_target_next, E_target_current) : \
                            BY_EPOCH(ep, E_peer_message_stale, E_peer_progress_current))
#define REFUSE_EVENT(ep) BY_EPOCH(ep, E_peer_message_stale, E_peer_refused)
#define GONE_EVENT(ep) BY_EPOCH(ep, E_peer_message_stale, E_peer_closed)

#define ARRIVES(set, ep, event) \
  (channel[me] && ((set[o] >> (ep)) & 1) && LIVE(me, event) && !HAS_REFUSED(me, ep))
#define TAKE(ep, event) ev = event; from_epoch = ep; by_message = true

/* An ignored message may be gone, with its copies. That matters for messages that come too early.
   Nothing waits for an ignored message of our own epoch; DROP_ALL checks that. */
#ifdef DROP_ALL
#define EARLY(ep) true
#else
#define EARLY(ep) ((ep) > epoch[me])
#endif
#define PASSES(set, ep, event) \
  (channel[me] && ((set[o] >> (ep)) & 1) && EARLY(ep) && !LIVE(me, event))
#define DROP(set, ep) set[o] = set[o] & ~(1 << (ep)); ev = E_none

/* All messages of one epoch. */
#define MESSAGES(ep) \
  :: PASSES(net_switch, ep, SWITCH_EVENT(ep)) -> DROP(net_switch, ep) \
  :: PASSES(net_progress, ep, PROGRESS_EVENT(ep)) -> DROP(net_progress, ep) \
  :: PASSES(net_refuse, ep, REFUSE_EVENT(ep)) -> DROP(net_refuse, ep) \
  :: PASSES(net_gone, ep, GONE_EVENT(ep)) -> DROP(net_gone, ep) \
  :: ARRIVES(net_switch, ep, SWITCH_EVENT(ep)) -> TAKE(ep, SWITCH_EVENT(ep)) \
  :: ARRIVES(net_progress, ep, PROGRESS_EVENT(ep)) -> TAKE(ep, PROGRESS_EVENT(ep)) \
  :: ARRIVES(net_refuse, ep, REFUSE_EVENT(ep)) -> ev = REFUSE_EVENT(ep) \
  :: ARRIVES(net_gone, ep, GONE_EVENT(ep)) -> ev = GONE_EVENT(ep)

/* Attempts of the way back are numbered: a late copy from an attempt that ended means nothing. */
#define FOR_NOW(number) (attempt_epoch[number] == epoch[me])
#define DRAINS_OF(number) \
  :: me == 1 && channel[me] && ((net_drain >> number) & 1) && FOR_NOW(number) && \
       number > seen_attempt && LIVE(me, E_peer_drain) -> \
     ev = E_peer_drain; seen_attempt = number; seen_cancel = false; answered = false \
  :: me == 1 && channel[me] && ((net_cancel >> number) & 1) && FOR_NOW(number) && \
       (number > seen_attempt || (number == seen_attempt && !seen_cancel)) && \
       LIVE(me, E_peer_drain_cancel) -> \
     ev = E_peer_drain_cancel; seen_attempt = number; seen_cancel = true \
  :: me == 0 && channel[me] && ((net_drained >> number) & 1) && FOR_NOW(number) && \
       number == attempt && watch[me] && !peer_drained -> \
     ev = E_none; peer_drained = true

/* The leader sets up a path's connection. A QP serves one path at a time, so an offer takes its two
   QPs from other paths. Neither end lets go of the QP that it is committed to: the requests that it
   moved would be lost. Nor does the leader take the follower's QP from the leader's own path, which
   is the follower's target, or from a spare that works. */
#define CAN_OFFER(p) \
  (me == 0 && shake[p] == 0 && GOOD(p) && channel[0] && channel[1] && !over[0] && !over[1] && \
   !SHARES(at[0], p) && !USES_MEMBER_OF(1, p) && SPARES(0, p) && SPARES(1, p) && SPARES(2, p))
#ifdef CROSS
#define SPARES(q, p) ((q) == (p) || !SHARES(q, p) || shake[q] == 0 || !GOOD(q))
#else
#define SPARES(q, p) true
#endif
inline offer(p) {
  SAY("0: path %d, generation %d, is accepted\n", p, generation[p] + 1);
#ifdef CROSS
  k = 0;
  do
  :: k < PATHS ->
    if
    :: k != p && SHARES(k, p) -> joined[k] = false; shake[k] = 0
    :: else -> skip
    fi;
    if
    :: k != p && MEMBER(0, k) == MEMBER(0, p) -> rts[X(0, k)] = false
    :: k != p && MEMBER(1, k) == MEMBER(1, p) -> rts[X(1, k)] = false
    :: else -> skip
    fi;
    k++
  :: else -> k = 0; break
  od;
#endif
  generation[p]++;
  assert(livelock || generation[p] < 2 * EPOCHS);
  rts[X(0, p)] = false;
  rts[X(1, p)] = true;
  joined[p] = false;
  expects[X(0, p)] = 0;
  sent[X(0, p)] = 0;
  expects[X(1, p)] = 0;
  sent[X(1, p)] = 0;
  shake[p] = 1
}
inline connected(p) {
  SAY("0: path %d, generation %d, is ready\n", p, generation[p]);
  rts[X(0, p)] = true;
  joined[p] = true;
  shake[p] = 2
}
#define OFFERS(p) \
  :: CAN_OFFER(p) -> ev = E_none; d_step { offer(p) } \
  :: me == 0 && shake[p] == 1 && GOOD(p) && rts[X(1, p)] && !over[0] -> \
     ev = E_none; d_step { connected(p) } \
  :: me == 0 && seeking[me] && shake[p] == 2 && LIVE(me, E_path_ready) -> \
     ev = E_path_ready; target[me] = p; target_generation[me] = generation[p]; seeking[me] = false
#define ARRIVALS(p) \
  :: CAN_ARRIVE(me, p) -> ev = E_none; d_step { arrive(me, p, o) }

#define BETTER(p) \
  (at[0] != NO_PATH && ((p) < at[0] || (ORDERS && (p) != at[0])) && shake[p] == 2 && GOOD(p))

/* Repeats what may have been lost with the old connections (Coordinator::on_connection_up). */
inline reconnect() {
  SAY("%d: the channel is back\n", me);
  channel[me] = true;
  if
  :: !met[me] -> met[me] = true; ev = E_bound
  :: else -> skip
  fi;
  if
  :: st[me] == S_fencing || st[me] == S_fencing_targeted || st[me] == S_seeking ->
    send(net_switch[me])
  :: st[me] == S_held && answered -> send_attempt(net_drained, seen_attempt)
  :: epoch[me] > 0 && (st[me] == S_exchanging || st[me] == S_resuming || st[me] == S_active) ->
    send(net_progress[me])
  :: else -> skip
  fi;
  /* The follower of a drain stays parked while the channel is down. */
  if
  :: me == 0 && st[me] == S_active && attempt > 0 -> send_attempt(net_cancel, attempt)
  :: else -> skip
  fi
}

/* The fence is proven: what the old path executed here is final, so it is counted now. */
inline fence_done() {
  fence[me] = 0;
  count[me] = notified[o];
  if
  :: me == 0 && at[me] != NO_PATH -> shake[at[me]] = 0
  :: else -> skip
  fi;
  at[me] = NO_PATH;
  stands[me] = false;
  acked[me] = done[me]
}

/* The end is stuck, and only a deadline helps. While a path is good and the channel works, that must
   not happen (C7). Nor may an end wait for a peer that has given up and could say so (C6). */
#define SOME_PATH_GOOD (GOOD(0) || GOOD(1) || GOOD(PATHS - 1))
inline last_resort() {
  assert(C7 || MAY_FAIL || !SOME_PATH_GOOD || !channel[0] || !channel[1]);
  assert(C6 || !IS_OVER(o) || !channel[0] || !channel[1])
}

proctype end(byte me) END_PROVIDED {
  byte o = PEER(me);
end_of_run:
  do
  :: atomic {
       if
       /* The data path. */
       :: CAN_POST(me) -> ev = E_none; d_step { post(me) }
       :: CAN_POLL(me) -> ev = E_none; d_step { complete(me) }
       ARRIVALS(0)
       ARRIVALS(1)
#if PATHS > 2
       ARRIVALS(2)
#endif

       /* Faults, as an end sees them. */
       :: TROUBLE(me) && LIVE(me, E_path_fault) -> ev = E_path_fault
       :: scares > 0 && at[me] != NO_PATH && LIVE(me, E_path_fault) -> scares--; ev = E_path_fault
       :: st[me] == S_unbound && TROUBLE(me) && posted[me] > done[me] ->
         ev = E_app_error /* the application gets the error, as without SHIFT */
       :: st[me] == S_fencing_targeted && (!GOOD(target[me]) || NEXT_IS(E_target_unusable)) ->
         ev = E_target_unusable

       /* The end's own steps. */
       :: fence[me] == 1 && at[me] != NO_PATH ->
         ev = E_none; parked[me] = true; rts[X(me, at[me])] = false; fence[me] = 2;
         SAY("%d: the QP on path %d is in ERR\n", me, at[me])
       :: fence[me] == 2 || (fence[me] == 1 && at[me] == NO_PATH) ->
         ev = E_fence_done; d_step { fence_done() }
       :: fence[me] == 2 && unproven > 0 -> unproven--; fence[me] = 0; ev = E_fence_failed
       :: keys[me] -> keys[me] = false; ev = E_keys_ready
       :: keyless > 0 && at[me] != NO_PATH && LIVE(me, E_replay_refused) ->
         keyless--; keys[me] = false; ev = E_replay_refused
       :: keyless > 0 && !no_region[me] -> keyless--; no_region[me] = true; ev = E_none
       OFFERS(0)
       OFFERS(1)
#if PATHS > 2
       OFFERS(2)
#endif

       /* The way back. */
       :: me == 0 && attempt < DRAINS && LIVE(me, E_better_path) &&
            (BETTER(0) || BETTER(1) || BETTER(PATHS - 1)) -> attempt++; ev = E_better_path
       :: watch[me] && posted[me] == done[me] &&
            (me == 0 -> peer_drained : !answered && channel[me]) -> ev = E_drained
       :: watch[me] && DRAIN_MAY_END(me) -> ev = E_drain_timeout

       /* Messages. */
       MESSAGES(0)
       MESSAGES(1)
       MESSAGES(2)
       MESSAGES(3)
       MESSAGES(4)
       MESSAGES(5)
#if EPOCHS > 6
       MESSAGES(6)
       MESSAGES(7)
#endif
#if EPOCHS > 8
       MESSAGES(8)
       MESSAGES(9)
       MESSAGES(10)
       MESSAGES(11)
       MESSAGES(12)
       MESSAGES(13)
       MESSAGES(14)
       MESSAGES(15)
#endif
#if DRAINS > 0
       DRAINS_OF(1)
#endif
#if DRAINS > 1
       DRAINS_OF(2)
#endif
#if DRAINS > 2
       DRAINS_OF(3)
       DRAINS_OF(4)
       DRAINS_OF(5)
       DRAINS_OF(6)
#endif
       :: channel[me] && net_close[o] && LIVE(me, E_peer_closed) -> ev = E_peer_closed
       :: lost[me] -> lost[me] = false; ev = E_channel_lost
       :: RECONNECT && !channel[me] && !lost[me] && !(IS_OVER(o) && !met[me]) -> ev = E_none; d_step { reconnect() }

       /* The application. */
       :: closes > 0 && LIVE(me, E_app_closed) -> closes--; ev = E_app_closed
       :: app_errors > 0 && at[me] != NO_PATH && LIVE(me, E_app_error) ->
         app_errors--; ev = E_app_error
       :: BIND == 2 && !met[me] && LIVE(me, E_no_peer) -> ev = E_no_peer

       :: EARLY_DEADLINE && deadline[me] -> deadline[me] = false; ev = E_deadline
       :: timeout && deadline[me] -> last_resort(); deadline[me] = false; ev = E_deadline
       fi;
       d_step { feed() }
     }
  od
}

proctype faults() {
end_of_run:
  do
  :: cuts > 0 && up[0] -> atomic { cuts--; up[0] = false }
  :: cuts > 0 && up[1] -> atomic { cuts--; up[1] = false }
#if PATHS > 2
  :: cuts > 0 && up[2] -> atomic { cuts--; up[2] = false }
#endif
  :: heals > 0 && !up[0] -> atomic { heals--; up[0] = true }
  :: heals > 0 && !up[1] -> atomic { heals--; up[1] = true }
  :: deaths > 0 -> atomic {
       deaths--;
       if
       :: dead[X(0, 0)] = true
       :: dead[X(0, 1)] = true
       :: dead[X(1, 0)] = true
       :: dead[X(1, 1)] = true
       fi
     }
  /* Either end may notice, or may find new connections before it knows that the old ones are gone. */
  :: losses > 0 && channel[0] && channel[1] -> atomic {
       losses--;
       if
       :: lost[0] = true; lost[1] = true
       :: lost[0] = true
       :: lost[1] = true
       :: true
       fi;
       d_step {
         channel[0] = false; channel[1] = false;
         net_switch[0] = 0; net_switch[1] = 0;
         net_progress[0] = 0; net_progress[1] = 0;
         net_refuse[0] = 0; net_refuse[1] = 0;
         net_gone[0] = 0; net_gone[1] = 0;
         net_close[0] = false; net_close[1] = false;
         net_drain = 0; net_cancel = 0; net_drained = 0
       }
     }
  od
}

/* Looks at the end of every run. */
proctype judge() {
  timeout && !deadline[0] && !deadline[1];
  /* Everything that the applications posted is completed or failed, and no end waits. */
  assert(C6 || ((over[0] || done[0] == N_A) && (over[1] || done[1] == N_B)));
  assert(C6 || IS_OVER(0) || st[0] == S_active || st[0] == S_unbound);
  assert(C6 || IS_OVER(1) || st[1] == S_active || st[1] == S_unbound);
  assert(C7 || MAY_FAIL || !SOME_PATH_GOOD || (!over[0] && !over[1]));
  assert(one_path || st[0] != S_active || st[1] != S_active || !channel[0] || !channel[1] ||
         (epoch[0] == epoch[1] && at[0] == at[1] && joined[at[0]]))
}

init {
  byte s, e, p;
  d_step {
    for (e : 0 .. EVENTS - 1) {
      for (s : 0 .. STATES - 1) {
        table_step(s, e);
        if
        :: t_kind != K_ignore -> live[e] = live[e] | (1 << s)
        :: else -> skip
        fi
      }
    }
    for (p : 0 .. PATHS - 1) {
      up[p] = true;
      if
      :: p == FIRST_PATH || (SPARE && !BIND && p == 1 - FIRST_PATH) ->
        rts[X(0, p)] = true;
        rts[X(1, p)] = true;
        joined[p] = true;
        shake[p] = 2
      :: else -> skip
      fi
    }
    for (e : 0 .. 1) {
      st[e] = S_active;
      met[e] = !BIND;
      at[e] = FIRST_PATH;
      stands[e] = true;
      channel[e] = !BIND;
      target[e] = NO_PATH
    }
    receives_stand = LENIENT;
    s = 0; e = 0; p = 0
  }
  atomic { run end(0); run end(1); run faults(); JUDGE }
}
