/* For trace.pml: reads the record of two ends from the file that TRACE names. Its first line
   holds the budgets of faults; each further line is "END EPOCH STATE EVENT STATE" in the numbers
   of table.pml. */
#include <stdio.h>
#include <stdlib.h>

enum { TRACE_MAX = 4096 };
static struct { int epoch, state, on, next; } trace[2][TRACE_MAX + 1];
static int trace_length[2], trace_best[2];

static void trace_begin(void) {
  FILE* file = fopen(getenv("TRACE"), "r");
  int scares, losses, closes, app_errors, unproven, keyless;
  if (file == NULL || fscanf(file, "%d %d %d %d %d %d", &scares, &losses, &closes, &app_errors,
                             &unproven, &keyless) != 6) {
    printf("trace: cannot be read\n");
    exit(4);
  }
  now.scares = scares;
  now.losses = losses;
  now.closes = closes;
  now.app_errors = app_errors;
  now.unproven = unproven;
  now.keyless = keyless;
  for (int end, epoch, state, event, next;
       fscanf(file, "%d %d %d %d %d", &end, &epoch, &state, &event, &next) == 5;) {
    int* length = &trace_length[end];
    if (*length == TRACE_MAX) break;
    trace[end][*length].epoch = epoch;
    trace[end][*length].state = state;
    trace[end][*length].on = event;
    trace[end][(*length)++].next = next;
  }
  fclose(file);
  trace[0][trace_length[0]].on = trace[1][trace_length[1]].on = -1;
}

/* Called when an event is about to do something. */
static void trace_take(int end) {
  const int at = now.taken[end];
  if (t_kind == 2) return; /* K_ignore: not recorded */
  if (at == trace_length[end] || trace[end][at].state != now.st[end] ||
      trace[end][at].on != now.ev || trace[end][at].epoch != now.epoch[end] || t_kind != 1 ||
      trace[end][at].next != t_next) {
    now.rejected = 1;
    return;
  }
  now.taken[end]++;
  if (now.taken[0] + now.taken[1] > trace_best[0] + trace_best[1]) {
    trace_best[0] = now.taken[0];
    trace_best[1] = now.taken[1];
    printf("reached %d %d\n", trace_best[0], trace_best[1]);
  }
  if (now.taken[0] == trace_length[0] && now.taken[1] == trace_length[1]) {
    printf("accepted\n");
    exit(0);
  }
}
