/* MPI traffic; the receiver checks every byte.
 * Usage: mpi_check SEED ROUNDS MAX_BYTES all|messages|collectives|windows
 * Rank 0 ends with "mpi_check ok: R ranks, N checks"; any rank that finds something else ends the
 * job. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static uint64_t seed, checks, step;

/* Returns what byte `at` of this step's message from one rank to another must be. */
static uint8_t byte_wanted(int from, int to, uint64_t at) {
  uint64_t x = (seed << 40) ^ (step << 24) ^ ((uint64_t)from << 12) ^ (uint64_t)to;
  x = (x + at / 8) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return (uint8_t)(x >> (8 * (at % 8)));
}

static void fill(uint8_t* data, uint64_t size, int from, int to) {
  for (uint64_t i = 0; i < size; i++) data[i] = byte_wanted(from, to, i);
}

static void fail(const char* what, uint64_t at, uint64_t got, uint64_t want) {
  printf("mpi_check FAILED: rank %d, step %llu, %s: at %llu %llx instead of %llx\n", rank,
         (unsigned long long)step, what, (unsigned long long)at, (unsigned long long)got,
         (unsigned long long)want);
  fflush(stdout);
  MPI_Abort(MPI_COMM_WORLD, 3);
}

static void check(const char* what, const uint8_t* data, uint64_t size, int from, int to) {
  for (uint64_t i = 0; i < size; i++)
    if (data[i] != byte_wanted(from, to, i)) fail(what, i, data[i], byte_wanted(from, to, i));
  checks++;
}

static void check_number(const char* what, uint64_t at, uint64_t got, uint64_t want) {
  if (got != want) fail(what, at, got, want);
  checks++;
}

static uint8_t* room(uint64_t size) {
  uint8_t* data = malloc(size + 1);
  if (data == NULL) MPI_Abort(MPI_COMM_WORLD, 4);
  return data;
}

/* Messages go round the ring in both directions at once. */
static void ring(uint64_t size) {
  uint8_t *out = room(2 * size), *in = room(2 * size);
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  step++;
  for (int turn = 0; turn < 2; turn++) {
    const int to = turn ? left : right, from = turn ? right : left;
    MPI_Status status;
    int count;
    fill(out, size, rank, to);
    memset(in, 0, size);
    MPI_Sendrecv(out, (int)size, MPI_BYTE, to, turn, in, (int)size, MPI_BYTE, from, turn,
                 MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_BYTE, &count);
    check_number("ring size", size, (uint64_t)count, size);
    check("ring", in, size, from, rank);
  }
  free(out);
  free(in);
}

/* Each rank sends many messages to all before it receives any, and receives in reverse order. */
static void burst(uint64_t size, int count) {
  const int all = count * ranks;
  uint8_t *out = room(size * (uint64_t)all), *in = room(size * (uint64_t)all);
  MPI_Request* requests = malloc(sizeof(MPI_Request) * (size_t)all * 2);
  step++;
  for (int i = 0; i < all; i++) {
    fill(out + size * (uint64_t)i, size, rank, i);
    MPI_Isend(out + size * (uint64_t)i, (int)size, MPI_BYTE, i % ranks, i / ranks, MPI_COMM_WORLD,
              &requests[i]);
  }
  for (int i = all - 1; i >= 0; i--)
    MPI_Irecv(in + size * (uint64_t)i, (int)size, MPI_BYTE, i % ranks, i / ranks, MPI_COMM_WORLD,
              &requests[all + i]);
  MPI_Waitall(2 * all, requests, MPI_STATUSES_IGNORE);
  for (int i = 0; i < all; i++) {
    const int index = i / ranks * ranks + rank; /* as the sender counts */
    check("burst", in + size * (uint64_t)i, size, i % ranks, index);
  }
  free(out);
  free(in);
  free(requests);
}

static void reduce_all(uint64_t count) {
  int64_t* numbers = malloc(count * sizeof *numbers);
  step++;
  for (uint64_t i = 0; i < count; i++) numbers[i] = (int64_t)(i * 7 + step) * (rank + 1);
  MPI_Allreduce(MPI_IN_PLACE, numbers, (int)count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  const int64_t factor = (int64_t)ranks * (ranks + 1) / 2;
  for (uint64_t i = 0; i < count; i++)
    if (numbers[i] != (int64_t)(i * 7 + step) * factor)
      fail("allreduce", i, (uint64_t)numbers[i], (uint64_t)((int64_t)(i * 7 + step) * factor));
  checks++;
  free(numbers);
}

static void exchange_all(uint64_t size) {
  uint8_t *out = room(size * (uint64_t)ranks), *in = room(size * (uint64_t)ranks);
  step++;
  for (int i = 0; i < ranks; i++) fill(out + size * (uint64_t)i, size, rank, i);
  MPI_Alltoall(out, (int)size, MPI_BYTE, in, (int)size, MPI_BYTE, MPI_COMM_WORLD);
  for (int i = 0; i < ranks; i++) check("alltoall", in + size * (uint64_t)i, size, i, rank);
  const int root = (int)(step % (uint64_t)ranks);
  if (rank == root) fill(out, size, root, root);
  MPI_Bcast(out, (int)size, MPI_BYTE, root, MPI_COMM_WORLD);
  check("bcast", out, size, root, root);
  free(out);
  free(in);
}

/* One-sided traffic: put to the right, get from the left, counters on rank 0. */
static void windows(uint64_t size) {
  uint8_t *memory, *got = room(size);
  uint64_t* counters;
  MPI_Win data_window, counter_window;
  const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
  step++;
  MPI_Win_allocate((MPI_Aint)(2 * size), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &data_window);
  MPI_Win_allocate(2 * sizeof(uint64_t), sizeof(uint64_t), MPI_INFO_NULL, MPI_COMM_WORLD, &counters,
                   &counter_window);
  memset(memory, 0, 2 * size);
  counters[0] = 0;
  counters[1] = UINT64_MAX;
  uint8_t* out = room(size);
  fill(out, size, rank, right);
  MPI_Win_fence(0, data_window);
  MPI_Put(out, (int)size, MPI_BYTE, right, 0, (int)size, MPI_BYTE, data_window);
  MPI_Win_fence(0, data_window);
  check("put", memory, size, left, rank);
  fill(memory + size, size, rank, rank);
  MPI_Win_fence(0, data_window);
  MPI_Get(got, (int)size, MPI_BYTE, left, (MPI_Aint)size, (int)size, MPI_BYTE, data_window);
  MPI_Win_fence(0, data_window);
  check("get", got, size, left, left);

  enum { kAdds = 20 };
  const uint64_t one = 1, none = UINT64_MAX, mine = (uint64_t)rank;
  uint64_t before, winner, last = 0;
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_lock_all(0, counter_window);
  for (int i = 0; i < kAdds; i++) {
    MPI_Fetch_and_op(&one, &before, MPI_UINT64_T, 0, 0, MPI_SUM, counter_window);
    MPI_Win_flush(0, counter_window);
    if (i > 0 && before <= last) fail("fetch_and_op goes back", (uint64_t)i, before, last);
    last = before;
  }
  MPI_Compare_and_swap(&mine, &none, &winner, MPI_UINT64_T, 0, 1, counter_window);
  MPI_Win_flush(0, counter_window);
  MPI_Win_unlock_all(counter_window);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, counter_window);
    check_number("fetch_and_op", 0, counters[0], (uint64_t)kAdds * (uint64_t)ranks);
    if (counters[1] >= (uint64_t)ranks) fail("compare_and_swap", 1, counters[1], 0);
    MPI_Win_unlock(0, counter_window);
  }
  int won = winner == UINT64_MAX, winners;
  MPI_Allreduce(&won, &winners, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  check_number("winners of compare_and_swap", 0, (uint64_t)winners, 1);
  free(out);
  free(got);
  MPI_Win_free(&data_window);
  MPI_Win_free(&counter_window);
}

static int wanted(const char* asked, const char* part) {
  return strcmp(asked, "all") == 0 || strcmp(asked, part) == 0;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 5) MPI_Abort(MPI_COMM_WORLD, 2);
  seed = strtoull(argv[1], NULL, 0);
  const int rounds = atoi(argv[2]);
  const uint64_t limit = strtoull(argv[3], NULL, 0);
  static const uint64_t sizes[] = {0, 1, 8, 63, 255, 1024, 4097, 8192, 65536, 300001};
  for (int round = 0; round < rounds; round++) {
    if (wanted(argv[4], "messages")) {
      for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i] <= limit) ring(sizes[i]);
      ring(limit);
      burst(64, 50);
      burst(20000, 4);
    }
    if (wanted(argv[4], "collectives")) {
      reduce_all(1);
      reduce_all(1000);
      reduce_all(limit / 8);
      exchange_all(16);
      exchange_all(limit / 4);
    }
    if (wanted(argv[4], "windows")) {
      windows(100);
      windows(limit / 4);
    }
    if (rank == 0) {
      printf("mpi_check: round %d of %d is over\n", round + 1, rounds);
      fflush(stdout);
    }
  }
  uint64_t total = 0;
  MPI_Reduce(&checks, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0) printf("mpi_check ok: %d ranks, %llu checks\n", ranks, (unsigned long long)total);
  MPI_Finalize();
  return 0;
}
