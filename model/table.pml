/* The failure state machine's table (providers/shift/fsm/fsm.cc), printed by
   fsm-gen --promela. Do not edit; a test fails when it is out of date. */

#define S_unbound 0
#define S_active 1
#define S_draining 2
#define S_held 3
#define S_fencing 4
#define S_fencing_targeted 5
#define S_seeking 6
#define S_exchanging 7
#define S_resuming 8
#define S_failed 9
#define S_closed 10
#define STATES 11

#define E_bound 0
#define E_no_peer 1
#define E_app_error 2
#define E_app_closed 3
#define E_path_fault 4
#define E_better_path 5
#define E_path_ready 6
#define E_target_unusable 7
#define E_drained 8
#define E_drain_timeout 9
#define E_fence_done 10
#define E_fence_failed 11
#define E_keys_ready 12
#define E_replay_refused 13
#define E_deadline 14
#define E_peer_drain 15
#define E_peer_drain_cancel 16
#define E_peer_switch_next 17
#define E_peer_switch_current 18
#define E_target_next 19
#define E_target_current 20
#define E_peer_progress_current 21
#define E_peer_message_stale 22
#define E_peer_refused 23
#define E_peer_closed 24
#define E_channel_lost 25
#define EVENTS 26

#define A_none 0
#define A_protect 1
#define A_unprotect 2
#define A_park 3
#define A_unpark 4
#define A_watch_drain 5
#define A_leave_drain 6
#define A_send_drain 7
#define A_send_drained 8
#define A_send_drain_cancel 9
#define A_enter_epoch 10
#define A_send_switch 11
#define A_start_fence 12
#define A_arm_deadline 13
#define A_cancel_deadline 14
#define A_seek_path 15
#define A_keep_progress 16
#define A_commit 17
#define A_send_progress 18
#define A_request_keys 19
#define A_replay 20
#define A_fail 21
#define A_send_refuse 22
#define A_send_close 23
#define A_flush_waiting 24
#define A_rebind 25
#define ACTIONS 26

#define E_none EVENTS
#define ACTIONS_MAX 7

#define K_transition 1
#define K_ignore 2
#define K_impossible 3

/* The cell that was looked up last. Not part of the state: written before it is read. */
hidden byte t_kind;
hidden byte t_next;
hidden byte t_act[ACTIONS_MAX];

inline ignored() { t_kind = K_ignore }
inline impossible() { t_kind = K_impossible }
inline go0(to) { t_kind = K_transition; t_next = to; t_act[0] = A_none }
inline go1(to, a0) { t_kind = K_transition; t_next = to; t_act[0] = a0; t_act[1] = A_none }
inline go2(to, a0, a1) { t_kind = K_transition; t_next = to; t_act[0] = a0; t_act[1] = a1; t_act[2] = A_none }
inline go3(to, a0, a1, a2) { t_kind = K_transition; t_next = to; t_act[0] = a0; t_act[1] = a1; t_act[2] = a2; t_act[3] = A_none }
inline go4(to, a0, a1, a2, a3) { t_kind = K_transition; t_next = to; t_act[0] = a0; t_act[1] = a1; t_act[2] = a2; t_act[3] = a3; t_act[4] = A_none }
inline go5(to, a0, a1, a2, a3, a4) { t_kind = K_transition; t_next = to; t_act[0] = a0; t_act[1] = a1; t_act[2] = a2; t_act[3] = a3; t_act[4] = a4; t_act[5] = A_none }
inline go6(to, a0, a1, a2, a3, a4, a5) { t_kind = K_transition; t_next = to; t_act[0] = a0; t_act[1] = a1; t_act[2] = a2; t_act[3] = a3; t_act[4] = a4; t_act[5] = a5; t_act[6] = A_none }
inline go7(to, a0, a1, a2, a3, a4, a5, a6) { t_kind = K_transition; t_next = to; t_act[0] = a0; t_act[1] = a1; t_act[2] = a2; t_act[3] = a3; t_act[4] = a4; t_act[5] = a5; t_act[6] = a6 }

inline table_step(s, e) {
  if
  :: s == S_unbound ->
    if
    :: e == E_bound -> go1(S_active, A_protect) /* unbound + bound */
    :: e == E_no_peer -> ignored() /* unbound + no-peer */
    :: e == E_app_error -> go1(S_closed, A_flush_waiting) /* unbound + app-error */
    :: e == E_app_closed -> go1(S_closed, A_send_close) /* unbound + app-closed */
    :: e == E_path_fault -> ignored() /* unbound + path-fault */
    :: e == E_better_path -> ignored() /* unbound + better-path */
    :: e == E_path_ready -> ignored() /* unbound + path-ready */
    :: e == E_target_unusable -> impossible() /* unbound + target-unusable */
    :: e == E_drained -> ignored() /* unbound + drained */
    :: e == E_drain_timeout -> ignored() /* unbound + drain-timeout */
    :: e == E_fence_done -> impossible() /* unbound + fence-done */
    :: e == E_fence_failed -> impossible() /* unbound + fence-failed */
    :: e == E_keys_ready -> ignored() /* unbound + keys-ready */
    :: e == E_replay_refused -> go2(S_failed, A_fail, A_send_refuse) /* unbound + replay-refused */
    :: e == E_deadline -> ignored() /* unbound + deadline */
    :: e == E_peer_drain -> ignored() /* unbound + peer-drain */
    :: e == E_peer_drain_cancel -> ignored() /* unbound + peer-drain-cancel */
    :: e == E_peer_switch_next -> go1(S_unbound, A_send_refuse) /* unbound + peer-switch-next */
    :: e == E_peer_switch_current -> go1(S_unbound, A_send_refuse) /* unbound + peer-switch-current */
    :: e == E_target_next -> go1(S_unbound, A_send_refuse) /* unbound + target-next */
    :: e == E_target_current -> go1(S_unbound, A_send_refuse) /* unbound + target-current */
    :: e == E_peer_progress_current -> ignored() /* unbound + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* unbound + peer-message-stale */
    :: e == E_peer_refused -> ignored() /* unbound + peer-refused */
    :: e == E_peer_closed -> ignored() /* unbound + peer-closed */
    :: e == E_channel_lost -> ignored() /* unbound + channel-lost */
    fi
  :: s == S_active ->
    if
    :: e == E_bound -> ignored() /* active + bound */
    :: e == E_no_peer -> go1(S_unbound, A_unprotect) /* active + no-peer */
    :: e == E_app_error -> go2(S_closed, A_send_close, A_flush_waiting) /* active + app-error */
    :: e == E_app_closed -> go1(S_closed, A_send_close) /* active + app-closed */
    :: e == E_path_fault -> go4(S_fencing, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* active + path-fault */
    :: e == E_better_path -> go3(S_draining, A_park, A_send_drain, A_watch_drain) /* active + better-path */
    :: e == E_path_ready -> ignored() /* active + path-ready */
    :: e == E_target_unusable -> impossible() /* active + target-unusable */
    :: e == E_drained -> ignored() /* active + drained */
    :: e == E_drain_timeout -> ignored() /* active + drain-timeout */
    :: e == E_fence_done -> impossible() /* active + fence-done */
    :: e == E_fence_failed -> impossible() /* active + fence-failed */
    :: e == E_keys_ready -> ignored() /* active + keys-ready */
    :: e == E_replay_refused -> go2(S_failed, A_fail, A_send_refuse) /* active + replay-refused */
    :: e == E_deadline -> ignored() /* active + deadline */
    :: e == E_peer_drain -> go2(S_held, A_park, A_watch_drain) /* active + peer-drain */
    :: e == E_peer_drain_cancel -> ignored() /* active + peer-drain-cancel */
    :: e == E_peer_switch_next -> go4(S_fencing, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* active + peer-switch-next */
    :: e == E_peer_switch_current -> ignored() /* active + peer-switch-current */
    :: e == E_target_next -> go4(S_fencing_targeted, A_enter_epoch, A_keep_progress, A_arm_deadline, A_start_fence) /* active + target-next */
    :: e == E_target_current -> ignored() /* active + target-current */
    :: e == E_peer_progress_current -> ignored() /* active + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* active + peer-message-stale */
    :: e == E_peer_refused -> go1(S_failed, A_fail) /* active + peer-refused */
    :: e == E_peer_closed -> go1(S_unbound, A_unprotect) /* active + peer-closed */
    :: e == E_channel_lost -> go1(S_active, A_rebind) /* active + channel-lost */
    fi
  :: s == S_draining ->
    if
    :: e == E_bound -> ignored() /* draining + bound */
    :: e == E_no_peer -> impossible() /* draining + no-peer */
    :: e == E_app_error -> go3(S_failed, A_leave_drain, A_fail, A_send_refuse) /* draining + app-error */
    :: e == E_app_closed -> go2(S_closed, A_leave_drain, A_send_close) /* draining + app-closed */
    :: e == E_path_fault -> go5(S_fencing, A_leave_drain, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* draining + path-fault */
    :: e == E_better_path -> ignored() /* draining + better-path */
    :: e == E_path_ready -> ignored() /* draining + path-ready */
    :: e == E_target_unusable -> impossible() /* draining + target-unusable */
    :: e == E_drained -> go5(S_fencing, A_leave_drain, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* draining + drained */
    :: e == E_drain_timeout -> go3(S_active, A_leave_drain, A_send_drain_cancel, A_unpark) /* draining + drain-timeout */
    :: e == E_fence_done -> impossible() /* draining + fence-done */
    :: e == E_fence_failed -> impossible() /* draining + fence-failed */
    :: e == E_keys_ready -> ignored() /* draining + keys-ready */
    :: e == E_replay_refused -> go3(S_failed, A_leave_drain, A_fail, A_send_refuse) /* draining + replay-refused */
    :: e == E_deadline -> ignored() /* draining + deadline */
    :: e == E_peer_drain -> impossible() /* draining + peer-drain */
    :: e == E_peer_drain_cancel -> impossible() /* draining + peer-drain-cancel */
    :: e == E_peer_switch_next -> go5(S_fencing, A_leave_drain, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* draining + peer-switch-next */
    :: e == E_peer_switch_current -> ignored() /* draining + peer-switch-current */
    :: e == E_target_next -> impossible() /* draining + target-next */
    :: e == E_target_current -> impossible() /* draining + target-current */
    :: e == E_peer_progress_current -> ignored() /* draining + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* draining + peer-message-stale */
    :: e == E_peer_refused -> go2(S_failed, A_leave_drain, A_fail) /* draining + peer-refused */
    :: e == E_peer_closed -> go3(S_unbound, A_leave_drain, A_unpark, A_unprotect) /* draining + peer-closed */
    :: e == E_channel_lost -> go3(S_active, A_leave_drain, A_unpark, A_rebind) /* draining + channel-lost */
    fi
  :: s == S_held ->
    if
    :: e == E_bound -> ignored() /* held + bound */
    :: e == E_no_peer -> impossible() /* held + no-peer */
    :: e == E_app_error -> go3(S_failed, A_leave_drain, A_fail, A_send_refuse) /* held + app-error */
    :: e == E_app_closed -> go2(S_closed, A_leave_drain, A_send_close) /* held + app-closed */
    :: e == E_path_fault -> go5(S_fencing, A_leave_drain, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* held + path-fault */
    :: e == E_better_path -> ignored() /* held + better-path */
    :: e == E_path_ready -> ignored() /* held + path-ready */
    :: e == E_target_unusable -> impossible() /* held + target-unusable */
    :: e == E_drained -> go1(S_held, A_send_drained) /* held + drained */
    :: e == E_drain_timeout -> go2(S_active, A_leave_drain, A_unpark) /* held + drain-timeout */
    :: e == E_fence_done -> impossible() /* held + fence-done */
    :: e == E_fence_failed -> impossible() /* held + fence-failed */
    :: e == E_keys_ready -> ignored() /* held + keys-ready */
    :: e == E_replay_refused -> go3(S_failed, A_leave_drain, A_fail, A_send_refuse) /* held + replay-refused */
    :: e == E_deadline -> ignored() /* held + deadline */
    :: e == E_peer_drain -> ignored() /* held + peer-drain */
    :: e == E_peer_drain_cancel -> go2(S_active, A_leave_drain, A_unpark) /* held + peer-drain-cancel */
    :: e == E_peer_switch_next -> go5(S_fencing, A_leave_drain, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* held + peer-switch-next */
    :: e == E_peer_switch_current -> ignored() /* held + peer-switch-current */
    :: e == E_target_next -> go5(S_fencing_targeted, A_leave_drain, A_enter_epoch, A_keep_progress, A_arm_deadline, A_start_fence) /* held + target-next */
    :: e == E_target_current -> ignored() /* held + target-current */
    :: e == E_peer_progress_current -> impossible() /* held + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* held + peer-message-stale */
    :: e == E_peer_refused -> go2(S_failed, A_leave_drain, A_fail) /* held + peer-refused */
    :: e == E_peer_closed -> go3(S_unbound, A_leave_drain, A_unpark, A_unprotect) /* held + peer-closed */
    :: e == E_channel_lost -> go1(S_held, A_rebind) /* held + channel-lost */
    fi
  :: s == S_fencing ->
    if
    :: e == E_bound -> ignored() /* fencing + bound */
    :: e == E_no_peer -> go3(S_failed, A_cancel_deadline, A_fail, A_send_refuse) /* fencing + no-peer */
    :: e == E_app_error -> go3(S_failed, A_cancel_deadline, A_fail, A_send_refuse) /* fencing + app-error */
    :: e == E_app_closed -> go2(S_closed, A_cancel_deadline, A_send_close) /* fencing + app-closed */
    :: e == E_path_fault -> ignored() /* fencing + path-fault */
    :: e == E_better_path -> ignored() /* fencing + better-path */
    :: e == E_path_ready -> ignored() /* fencing + path-ready */
    :: e == E_target_unusable -> impossible() /* fencing + target-unusable */
    :: e == E_drained -> ignored() /* fencing + drained */
    :: e == E_drain_timeout -> ignored() /* fencing + drain-timeout */
    :: e == E_fence_done -> go1(S_seeking, A_seek_path) /* fencing + fence-done */
    :: e == E_fence_failed -> go3(S_failed, A_cancel_deadline, A_fail, A_send_refuse) /* fencing + fence-failed */
    :: e == E_keys_ready -> ignored() /* fencing + keys-ready */
    :: e == E_replay_refused -> ignored() /* fencing + replay-refused */
    :: e == E_deadline -> go2(S_failed, A_fail, A_send_refuse) /* fencing + deadline */
    :: e == E_peer_drain -> ignored() /* fencing + peer-drain */
    :: e == E_peer_drain_cancel -> ignored() /* fencing + peer-drain-cancel */
    :: e == E_peer_switch_next -> go2(S_fencing, A_enter_epoch, A_send_switch) /* fencing + peer-switch-next */
    :: e == E_peer_switch_current -> ignored() /* fencing + peer-switch-current */
    :: e == E_target_next -> go2(S_fencing_targeted, A_enter_epoch, A_keep_progress) /* fencing + target-next */
    :: e == E_target_current -> go1(S_fencing_targeted, A_keep_progress) /* fencing + target-current */
    :: e == E_peer_progress_current -> ignored() /* fencing + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* fencing + peer-message-stale */
    :: e == E_peer_refused -> go2(S_failed, A_cancel_deadline, A_fail) /* fencing + peer-refused */
    :: e == E_peer_closed -> go2(S_failed, A_cancel_deadline, A_fail) /* fencing + peer-closed */
    :: e == E_channel_lost -> go1(S_fencing, A_rebind) /* fencing + channel-lost */
    fi
  :: s == S_fencing_targeted ->
    if
    :: e == E_bound -> ignored() /* fencing-targeted + bound */
    :: e == E_no_peer -> impossible() /* fencing-targeted + no-peer */
    :: e == E_app_error -> go3(S_failed, A_cancel_deadline, A_fail, A_send_refuse) /* fencing-targeted + app-error */
    :: e == E_app_closed -> go2(S_closed, A_cancel_deadline, A_send_close) /* fencing-targeted + app-closed */
    :: e == E_path_fault -> ignored() /* fencing-targeted + path-fault */
    :: e == E_better_path -> ignored() /* fencing-targeted + better-path */
    :: e == E_path_ready -> ignored() /* fencing-targeted + path-ready */
    :: e == E_target_unusable -> go2(S_fencing, A_enter_epoch, A_send_switch) /* fencing-targeted + target-unusable */
    :: e == E_drained -> ignored() /* fencing-targeted + drained */
    :: e == E_drain_timeout -> ignored() /* fencing-targeted + drain-timeout */
    :: e == E_fence_done -> go3(S_resuming, A_commit, A_send_progress, A_request_keys) /* fencing-targeted + fence-done */
    :: e == E_fence_failed -> go3(S_failed, A_cancel_deadline, A_fail, A_send_refuse) /* fencing-targeted + fence-failed */
    :: e == E_keys_ready -> ignored() /* fencing-targeted + keys-ready */
    :: e == E_replay_refused -> ignored() /* fencing-targeted + replay-refused */
    :: e == E_deadline -> go2(S_failed, A_fail, A_send_refuse) /* fencing-targeted + deadline */
    :: e == E_peer_drain -> ignored() /* fencing-targeted + peer-drain */
    :: e == E_peer_drain_cancel -> ignored() /* fencing-targeted + peer-drain-cancel */
    :: e == E_peer_switch_next -> go2(S_fencing, A_enter_epoch, A_send_switch) /* fencing-targeted + peer-switch-next */
    :: e == E_peer_switch_current -> ignored() /* fencing-targeted + peer-switch-current */
    :: e == E_target_next -> go2(S_fencing_targeted, A_enter_epoch, A_keep_progress) /* fencing-targeted + target-next */
    :: e == E_target_current -> ignored() /* fencing-targeted + target-current */
    :: e == E_peer_progress_current -> impossible() /* fencing-targeted + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* fencing-targeted + peer-message-stale */
    :: e == E_peer_refused -> go2(S_failed, A_cancel_deadline, A_fail) /* fencing-targeted + peer-refused */
    :: e == E_peer_closed -> go2(S_failed, A_cancel_deadline, A_fail) /* fencing-targeted + peer-closed */
    :: e == E_channel_lost -> go1(S_fencing_targeted, A_rebind) /* fencing-targeted + channel-lost */
    fi
  :: s == S_seeking ->
    if
    :: e == E_bound -> ignored() /* seeking + bound */
    :: e == E_no_peer -> go3(S_failed, A_cancel_deadline, A_fail, A_send_refuse) /* seeking + no-peer */
    :: e == E_app_error -> ignored() /* seeking + app-error */
    :: e == E_app_closed -> go2(S_closed, A_cancel_deadline, A_send_close) /* seeking + app-closed */
    :: e == E_path_fault -> ignored() /* seeking + path-fault */
    :: e == E_better_path -> ignored() /* seeking + better-path */
    :: e == E_path_ready -> go2(S_exchanging, A_commit, A_send_progress) /* seeking + path-ready */
    :: e == E_target_unusable -> impossible() /* seeking + target-unusable */
    :: e == E_drained -> ignored() /* seeking + drained */
    :: e == E_drain_timeout -> ignored() /* seeking + drain-timeout */
    :: e == E_fence_done -> impossible() /* seeking + fence-done */
    :: e == E_fence_failed -> impossible() /* seeking + fence-failed */
    :: e == E_keys_ready -> ignored() /* seeking + keys-ready */
    :: e == E_replay_refused -> ignored() /* seeking + replay-refused */
    :: e == E_deadline -> go2(S_failed, A_fail, A_send_refuse) /* seeking + deadline */
    :: e == E_peer_drain -> ignored() /* seeking + peer-drain */
    :: e == E_peer_drain_cancel -> ignored() /* seeking + peer-drain-cancel */
    :: e == E_peer_switch_next -> go3(S_seeking, A_enter_epoch, A_send_switch, A_seek_path) /* seeking + peer-switch-next */
    :: e == E_peer_switch_current -> ignored() /* seeking + peer-switch-current */
    :: e == E_target_next -> go5(S_resuming, A_enter_epoch, A_keep_progress, A_commit, A_send_progress, A_request_keys) /* seeking + target-next */
    :: e == E_target_current -> go4(S_resuming, A_keep_progress, A_commit, A_send_progress, A_request_keys) /* seeking + target-current */
    :: e == E_peer_progress_current -> ignored() /* seeking + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* seeking + peer-message-stale */
    :: e == E_peer_refused -> go2(S_failed, A_cancel_deadline, A_fail) /* seeking + peer-refused */
    :: e == E_peer_closed -> go2(S_failed, A_cancel_deadline, A_fail) /* seeking + peer-closed */
    :: e == E_channel_lost -> go1(S_seeking, A_rebind) /* seeking + channel-lost */
    fi
  :: s == S_exchanging ->
    if
    :: e == E_bound -> ignored() /* exchanging + bound */
    :: e == E_no_peer -> impossible() /* exchanging + no-peer */
    :: e == E_app_error -> go3(S_failed, A_cancel_deadline, A_fail, A_send_refuse) /* exchanging + app-error */
    :: e == E_app_closed -> go2(S_closed, A_cancel_deadline, A_send_close) /* exchanging + app-closed */
    :: e == E_path_fault -> go4(S_fencing, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* exchanging + path-fault */
    :: e == E_better_path -> ignored() /* exchanging + better-path */
    :: e == E_path_ready -> ignored() /* exchanging + path-ready */
    :: e == E_target_unusable -> go4(S_fencing, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* exchanging + target-unusable */
    :: e == E_drained -> ignored() /* exchanging + drained */
    :: e == E_drain_timeout -> ignored() /* exchanging + drain-timeout */
    :: e == E_fence_done -> impossible() /* exchanging + fence-done */
    :: e == E_fence_failed -> impossible() /* exchanging + fence-failed */
    :: e == E_keys_ready -> ignored() /* exchanging + keys-ready */
    :: e == E_replay_refused -> go3(S_failed, A_cancel_deadline, A_fail, A_send_refuse) /* exchanging + replay-refused */
    :: e == E_deadline -> go2(S_failed, A_fail, A_send_refuse) /* exchanging + deadline */
    :: e == E_peer_drain -> impossible() /* exchanging + peer-drain */
    :: e == E_peer_drain_cancel -> impossible() /* exchanging + peer-drain-cancel */
    :: e == E_peer_switch_next -> go4(S_fencing, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* exchanging + peer-switch-next */
    :: e == E_peer_switch_current -> ignored() /* exchanging + peer-switch-current */
    :: e == E_target_next -> impossible() /* exchanging + target-next */
    :: e == E_target_current -> impossible() /* exchanging + target-current */
    :: e == E_peer_progress_current -> go2(S_resuming, A_keep_progress, A_request_keys) /* exchanging + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* exchanging + peer-message-stale */
    :: e == E_peer_refused -> go2(S_failed, A_cancel_deadline, A_fail) /* exchanging + peer-refused */
    :: e == E_peer_closed -> go2(S_failed, A_cancel_deadline, A_fail) /* exchanging + peer-closed */
    :: e == E_channel_lost -> go1(S_exchanging, A_rebind) /* exchanging + channel-lost */
    fi
  :: s == S_resuming ->
    if
    :: e == E_bound -> ignored() /* resuming + bound */
    :: e == E_no_peer -> impossible() /* resuming + no-peer */
    :: e == E_app_error -> go3(S_failed, A_cancel_deadline, A_fail, A_send_refuse) /* resuming + app-error */
    :: e == E_app_closed -> go2(S_closed, A_cancel_deadline, A_send_close) /* resuming + app-closed */
    :: e == E_path_fault -> go4(S_fencing, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* resuming + path-fault */
    :: e == E_better_path -> ignored() /* resuming + better-path */
    :: e == E_path_ready -> ignored() /* resuming + path-ready */
    :: e == E_target_unusable -> go4(S_fencing, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* resuming + target-unusable */
    :: e == E_drained -> ignored() /* resuming + drained */
    :: e == E_drain_timeout -> ignored() /* resuming + drain-timeout */
    :: e == E_fence_done -> impossible() /* resuming + fence-done */
    :: e == E_fence_failed -> impossible() /* resuming + fence-failed */
    :: e == E_keys_ready -> go2(S_active, A_cancel_deadline, A_replay) /* resuming + keys-ready */
    :: e == E_replay_refused -> go3(S_failed, A_cancel_deadline, A_fail, A_send_refuse) /* resuming + replay-refused */
    :: e == E_deadline -> go2(S_failed, A_fail, A_send_refuse) /* resuming + deadline */
    :: e == E_peer_drain -> ignored() /* resuming + peer-drain */
    :: e == E_peer_drain_cancel -> ignored() /* resuming + peer-drain-cancel */
    :: e == E_peer_switch_next -> go4(S_fencing, A_enter_epoch, A_send_switch, A_arm_deadline, A_start_fence) /* resuming + peer-switch-next */
    :: e == E_peer_switch_current -> ignored() /* resuming + peer-switch-current */
    :: e == E_target_next -> go3(S_fencing_targeted, A_enter_epoch, A_keep_progress, A_start_fence) /* resuming + target-next */
    :: e == E_target_current -> ignored() /* resuming + target-current */
    :: e == E_peer_progress_current -> ignored() /* resuming + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* resuming + peer-message-stale */
    :: e == E_peer_refused -> go2(S_failed, A_cancel_deadline, A_fail) /* resuming + peer-refused */
    :: e == E_peer_closed -> go2(S_failed, A_cancel_deadline, A_fail) /* resuming + peer-closed */
    :: e == E_channel_lost -> go1(S_resuming, A_rebind) /* resuming + channel-lost */
    fi
  :: s == S_failed ->
    if
    :: e == E_bound -> ignored() /* failed + bound */
    :: e == E_no_peer -> ignored() /* failed + no-peer */
    :: e == E_app_error -> ignored() /* failed + app-error */
    :: e == E_app_closed -> go1(S_closed, A_send_close) /* failed + app-closed */
    :: e == E_path_fault -> ignored() /* failed + path-fault */
    :: e == E_better_path -> ignored() /* failed + better-path */
    :: e == E_path_ready -> ignored() /* failed + path-ready */
    :: e == E_target_unusable -> ignored() /* failed + target-unusable */
    :: e == E_drained -> ignored() /* failed + drained */
    :: e == E_drain_timeout -> ignored() /* failed + drain-timeout */
    :: e == E_fence_done -> ignored() /* failed + fence-done */
    :: e == E_fence_failed -> ignored() /* failed + fence-failed */
    :: e == E_keys_ready -> ignored() /* failed + keys-ready */
    :: e == E_replay_refused -> ignored() /* failed + replay-refused */
    :: e == E_deadline -> ignored() /* failed + deadline */
    :: e == E_peer_drain -> ignored() /* failed + peer-drain */
    :: e == E_peer_drain_cancel -> ignored() /* failed + peer-drain-cancel */
    :: e == E_peer_switch_next -> go1(S_failed, A_send_refuse) /* failed + peer-switch-next */
    :: e == E_peer_switch_current -> go1(S_failed, A_send_refuse) /* failed + peer-switch-current */
    :: e == E_target_next -> go1(S_failed, A_send_refuse) /* failed + target-next */
    :: e == E_target_current -> go1(S_failed, A_send_refuse) /* failed + target-current */
    :: e == E_peer_progress_current -> go1(S_failed, A_send_refuse) /* failed + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* failed + peer-message-stale */
    :: e == E_peer_refused -> ignored() /* failed + peer-refused */
    :: e == E_peer_closed -> ignored() /* failed + peer-closed */
    :: e == E_channel_lost -> ignored() /* failed + channel-lost */
    fi
  :: s == S_closed ->
    if
    :: e == E_bound -> ignored() /* closed + bound */
    :: e == E_no_peer -> ignored() /* closed + no-peer */
    :: e == E_app_error -> ignored() /* closed + app-error */
    :: e == E_app_closed -> ignored() /* closed + app-closed */
    :: e == E_path_fault -> ignored() /* closed + path-fault */
    :: e == E_better_path -> ignored() /* closed + better-path */
    :: e == E_path_ready -> ignored() /* closed + path-ready */
    :: e == E_target_unusable -> ignored() /* closed + target-unusable */
    :: e == E_drained -> ignored() /* closed + drained */
    :: e == E_drain_timeout -> ignored() /* closed + drain-timeout */
    :: e == E_fence_done -> ignored() /* closed + fence-done */
    :: e == E_fence_failed -> ignored() /* closed + fence-failed */
    :: e == E_keys_ready -> ignored() /* closed + keys-ready */
    :: e == E_replay_refused -> ignored() /* closed + replay-refused */
    :: e == E_deadline -> ignored() /* closed + deadline */
    :: e == E_peer_drain -> ignored() /* closed + peer-drain */
    :: e == E_peer_drain_cancel -> ignored() /* closed + peer-drain-cancel */
    :: e == E_peer_switch_next -> go1(S_closed, A_send_refuse) /* closed + peer-switch-next */
    :: e == E_peer_switch_current -> go1(S_closed, A_send_refuse) /* closed + peer-switch-current */
    :: e == E_target_next -> go1(S_closed, A_send_refuse) /* closed + target-next */
    :: e == E_target_current -> go1(S_closed, A_send_refuse) /* closed + target-current */
    :: e == E_peer_progress_current -> go1(S_closed, A_send_refuse) /* closed + peer-progress-current */
    :: e == E_peer_message_stale -> ignored() /* closed + peer-message-stale */
    :: e == E_peer_refused -> ignored() /* closed + peer-refused */
    :: e == E_peer_closed -> ignored() /* closed + peer-closed */
    :: e == E_channel_lost -> ignored() /* closed + channel-lost */
    fi
  fi
}
