/* What the coordinator does for each action of the table. All actions run at end `me`, in one
   step with the event; `o` is the peer. */

hidden byte n;

inline send(set) {
  if
  :: channel[me] -> set = set | (1 << epoch[me])
  :: else -> skip
  fi
}
inline send_attempt(set, number) {
  if
  :: channel[me] -> set = set | (1 << number)
  :: else -> skip
  fi
}

/* Nothing moves at this end any more: kFail, or the application has ended its QP. */
inline shut() {
  over[me] = true;
  k = 0;
  do
  :: k < PATHS -> rts[X(me, k)] = false; k++
  :: else -> k = 0; break
  od;
  at[me] = NO_PATH;
  stands[me] = false;
  fence[me] = 0;
  seeking[me] = false;
  keys[me] = false;
  watch[me] = false;
  parked[me] = false
}

/* Messages that the peer sent in epochs that have ended for us change nothing (C8), so they need
   not be distinguished any longer. */
inline forget_stale() {
#ifndef KEEP_STALE
  k = 0;
  do
  :: k < epoch[me] ->
    told_count[o * (EPOCHS + 1) + k] = 0;
    if
    :: o == 0 -> told_path[k] = 0; told_generation[k] = 0
    :: else -> skip
    fi;
    k++
  :: else -> k = 0; break
  od;
  net_switch[o] = (net_switch[o] >> epoch[me]) << epoch[me];
  net_progress[o] = (net_progress[o] >> epoch[me]) << epoch[me];
  net_refuse[o] = (net_refuse[o] >> epoch[me]) << epoch[me];
  net_gone[o] = (net_gone[o] >> epoch[me]) << epoch[me]
#else
  skip
#endif
}

inline enter_epoch() {
  epoch[me] = (by_message && from_epoch > epoch[me] -> from_epoch : epoch[me] + 1);
  assert(livelock || epoch[me] < EPOCHS);
  keys[me] = false;
  forget_stale()
}

inline commit() {
  k = target[me];
  if
  :: no_region[me] || NEXT_IS(E_replay_refused) -> follow_up = E_replay_refused; stop = true
  :: !no_region[me] && rts[X(me, k)] && target_generation[me] == generation[k] && !DEAD(me, k) &&
     !NEXT_IS(E_target_unusable) ->
    at[me] = k;
    stands[me] = true;
    next_recv[me] = count[me]
  :: else ->
    follow_up = E_target_unusable;
    stop = true;
    if
    :: me == 0 -> shake[k] = 0
    :: else -> skip
    fi
  fi;
  k = 0
}

/* Progress says that the old path is shut, how many notifications this end has executed, and
   that its receives are posted on the target. */
inline send_progress() {
  assert(receives_stand || (fence[me] == 0 && at[me] == target[me] && stands[me]));
  told_count[me * (EPOCHS + 1) + epoch[me]] = count[me];
  if
  :: me == 0 ->
    told_path[epoch[me]] = target[me];
    told_generation[epoch[me]] = target_generation[me]
  :: else -> skip
  fi;
  send(net_progress[me])
}

inline keep_progress() {
  peer_count[me] = told_count[o * (EPOCHS + 1) + from_epoch];
  if
  :: me == 1 ->
    target[me] = told_path[from_epoch];
    target_generation[me] = told_generation[from_epoch]
  :: else -> skip
  fi
}

/* Whether an atomic has been posted whose outcome is unknown. */
#define ATOMIC_OPEN(e, n) (IS_ATOMIC(e, n) && done[e] <= (n) && (n) < posted[e])
#define UNPROVABLE(e) \
  (ATOMIC_OPEN(e, 0) || ATOMIC_OPEN(e, 1) || ATOMIC_OPEN(e, 2) || ATOMIC_OPEN(e, 3))

inline replay() {
  if
  :: UNPROVABLE(me) || NEXT_IS(E_replay_refused) -> follow_up = E_replay_refused
  :: else ->
    assert(C11 || (NOTIFICATIONS(me, done[me]) <= peer_count[me] &&
                   peer_count[me] <= NOTIFICATIONS(me, posted[me])));
    /* Everything before the peer's last notification was executed. */
    do
    :: done[me] < posted[me] && NOTIFICATIONS(me, done[me]) < peer_count[me] ->
      assert(C5 || !IS_ATOMIC(me, done[me]));
      complete(me)
    :: else -> break
    od;
    /* The rest is sent again as CAN_POST allows. */
    posted[me] = done[me];
    acked[me] = done[me];
    if
    :: joined[at[me]] ->
      expects[X(o, at[me])] = done[me];
      sent[X(o, at[me])] = done[me]
    :: else -> skip
    fi;
    parked[me] = false
  fi
}

inline send_refuse() {
  k = (by_message -> from_epoch : epoch[me]);
  if
  :: channel[me] && st[me] == S_closed -> net_gone[me] = net_gone[me] | (1 << k)
  :: channel[me] && st[me] != S_closed -> net_refuse[me] = net_refuse[me] | (1 << k)
  :: else -> skip
  fi;
  k = 0
}

inline send_drain() {
  attempt_epoch[attempt] = epoch[me];
  peer_drained = false;
  send_attempt(net_drain, attempt)
}

inline do_action(a) {
  if
  :: a == A_protect || a == A_unprotect -> skip /* the state implies it */
  :: a == A_park -> parked[me] = true
  :: a == A_unpark -> parked[me] = false
  :: a == A_watch_drain -> watch[me] = true
  :: a == A_leave_drain -> watch[me] = false
  :: a == A_send_drain -> send_drain()
  :: a == A_send_drained -> answered = true; send_attempt(net_drained, seen_attempt)
  :: a == A_send_drain_cancel -> send_attempt(net_cancel, attempt)
  :: a == A_enter_epoch -> enter_epoch()
  :: a == A_send_switch -> send(net_switch[me])
  :: a == A_start_fence -> fence[me] = 1
  :: a == A_arm_deadline -> deadline[me] = true
  :: a == A_cancel_deadline -> deadline[me] = false
  :: a == A_seek_path -> seeking[me] = (me == 0)
  :: a == A_keep_progress -> keep_progress()
  :: a == A_commit -> commit()
  :: a == A_send_progress -> send_progress()
  :: a == A_request_keys -> keys[me] = true
  :: a == A_replay -> replay()
  :: a == A_fail -> shut()
  :: a == A_send_refuse -> send_refuse()
  :: a == A_send_close -> net_close[me] = channel[me]
  :: a == A_flush_waiting -> skip /* the model has no requests that wait for a key */
  :: a == A_rebind -> skip /* in the model the channel comes back by itself */
  fi
}

/* Forgets what a round knew and is no longer read, so that it adds no states. */
inline forget_round() {
  if
  :: st[me] == S_active || st[me] == S_fencing || st[me] == S_failed || st[me] == S_closed ->
    target[me] = NO_PATH;
    target_generation[me] = 0;
    peer_count[me] = 0;
    count[me] = 0
  :: else -> skip
  fi
}

/* Coordinator::feed(): the event, and then the events that its actions raise, before anything
   else happens. */
inline feed() {
  do
  :: ev != E_none ->
    table_step(st[me], ev);
    SAY("%d: S%d + E%d -> S%d, epoch %d\n", me, st[me], ev,
        (t_kind == K_transition -> t_next : st[me]), epoch[me]);
    assert(impossible_cell || t_kind != K_impossible);
    RECORDED(ev)
    ev = E_none;
    if
    :: t_kind == K_transition ->
      st[me] = t_next;
      follow_up = E_none;
      n = 0;
      do
      :: n < ACTIONS_MAX && !stop ->
        if
        :: t_act[n] == A_none -> stop = true
        :: else -> do_action(t_act[n])
        fi;
        n++
      :: else -> break
      od;
      if
      :: t_next == S_closed -> deadline[me] = false; shut()
      :: else -> skip
      fi;
      ev = follow_up;
      follow_up = 0;
      stop = false
    :: else -> skip
    fi
  :: else -> break
  od;
  forget_round();
  ev = 0;
  from_epoch = 0;
  by_message = false
}
