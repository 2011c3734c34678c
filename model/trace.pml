/* Checks whether a record of two real ends is a run of this model. Both ends of shift.pml run
   freely, but each step of an end must be the next one in its record: the event, the state and
   epoch in which it came, and the state to which it led. The search chooses everything between
   (messages, offers, fences, the order of the two ends). trace.h reads the record and ends the
   search at its end. */
#define EPOCHS 16
#define DRAINS 6
#define PATHS 3
#define N_A 0
#define NOTIFY_A 0
#define N_B 0
#define NOTIFY_B 0
#define LENIENT 1
#define EARLY_DEADLINE 1
#define ORDERS 1
#define LATE_SWITCH 1

short taken[2]; /* steps taken of the record of each end */
bool rejected;

#define END_PROVIDED provided (!rejected)
#define RECORDED(event) c_code { trace_take(Pend->me); };
#define NEXT_IS(event) c_expr { trace[Pend->me][now.taken[Pend->me]].on == event }
/* An end that is asked again refuses again. */
#define HAS_REFUSED(e, ep) false
/* The properties are checked elsewhere; a branch that violates one fits no record. */
#define assert(property) skip
#define JUDGE c_code { trace_begin(); }

#include "shift.pml"

c_code {
\#include "trace.h"
}
