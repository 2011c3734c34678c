/* Is a record of two real ends a run of this model? Both ends of shift.pml run freely, but whatever
   an end does must be what the record says it did next: the event, in which state and epoch, and
   where it led. What lies between (messages, offers, fences, the order of the two ends) is left to
   the search; trace.h reads the record and ends the search at its end. */
#define EPOCHS 16
#define DRAINS 6
#define PATHS 3
#define N_A 0
#define NOTIFY_A 0
#define N_B 0
#define NOTIFY_B 0
#define LENIENT 1
#define EARLY_DEADLINE 1
#define LATE_SWITCH 1

short taken[2]; /* of the record of each end */
bool rejected;

#define END_PROVIDED provided (!rejected)
#define RECORDED(event) c_code { trace_take(Pend->me); };
#define NEXT_IS(event) c_expr { trace[Pend->me][now.taken[Pend->me]].on == event }
/* Who is asked again says so again. */
#define HAS_REFUSED(e, ep) false
/* The properties are checked elsewhere; a branch that breaks one fits no record. */
#define assert(property) skip
#define JUDGE c_code { trace_begin(); }

#include "shift.pml"

c_code {
\#include "trace.h"
}
