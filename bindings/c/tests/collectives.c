/* Every collective on any number of ranks, compared with a loop. Compiles as C and as C++. */
#include "check.h"

enum { COUNT = 1003 };

static int32_t rank, size;

static void facts(void) {
    int32_t local_rank, local_size;
    const char *text;
    OK(unisono_local_rank(&local_rank));
    OK(unisono_local_size(&local_size));
    CHECK(local_rank == rank && local_size == size);
    OK(unisono_transport(&text));
    CHECK(strcmp(text, size == 1 ? "alone" : "shm") == 0);
    OK(unisono_launcher(&text));
    CHECK(strlen(text) > 0);
    OK(unisono_host(size - 1, &text));
    CHECK(strlen(text) > 0);
    OK(unisono_version(&text));
    CHECK(strchr(text, '.') != NULL);
}

/* Value i of rank r. */
static double value(int r, int i) { return (r + 1) * 10 + i % 7; }

/* Value i of the first ranks, reduced. */
static double combined(int op, int i, int ranks) {
    double result = value(0, i);
    for (int r = 1; r < ranks; r++) {
        double x = value(r, i);
        switch (op) {
        case UNISONO_SUM:
        case UNISONO_AVG: result += x; break;
        case UNISONO_PROD: result *= x; break;
        case UNISONO_MIN: result = x < result ? x : result; break;
        case UNISONO_MAX: result = x > result ? x : result; break;
        }
    }
    return op == UNISONO_AVG ? result / ranks : result;
}

static int near_to(double one, double other) {
    double difference = one > other ? one - other : other - one;
    return difference <= 1e-5 * (other > 0 ? other : -other);
}

static void reductions(void) {
    static float f32[COUNT], prefix[COUNT];
    static double f64[COUNT];
    static int32_t i32[COUNT];
    static int64_t i64[COUNT];
    for (int op = UNISONO_SUM; op <= UNISONO_MAX; op++) {
        for (int i = 0; i < COUNT; i++) {
            f32[i] = prefix[i] = (float)value(rank, i);
            f64[i] = value(rank, i);
            i32[i] = (int32_t)value(rank, i);
            i64[i] = (int64_t)value(rank, i);
        }
        OK(unisono_all_reduce(UNISONO_WORLD, f32, COUNT, UNISONO_F32, op));
        OK(unisono_scan(UNISONO_WORLD, prefix, COUNT, UNISONO_F32, op));
        OK(unisono_reduce(UNISONO_WORLD, f64, COUNT, UNISONO_F64, op, size - 1));
        if (op != UNISONO_AVG) {
            OK(unisono_all_reduce(UNISONO_WORLD, i32, COUNT, UNISONO_I32, op));
            OK(unisono_all_reduce(UNISONO_WORLD, i64, COUNT, UNISONO_I64, op));
        }
        for (int i = 0; i < COUNT; i++) {
            double expected = combined(op, i, size);
            CHECK(near_to(f32[i], expected));
            CHECK(near_to(prefix[i], combined(op, i, rank + 1)));
            CHECK(near_to(f64[i], rank == size - 1 ? expected : value(rank, i)));
            if (op != UNISONO_AVG) {
                CHECK(i32[i] == (int32_t)expected && i64[i] == (int64_t)expected);
            }
        }
    }
}

static void moves(void) {
    enum { PART = 5 };
    int32_t part[PART], *all = (int32_t *)malloc(sizeof(int32_t) * PART * (size_t)size);
    int32_t *back = (int32_t *)malloc(sizeof(int32_t) * PART * (size_t)size);
    CHECK(all != NULL && back != NULL);
    for (int root = 0; root < size; root++) {
        for (int i = 0; i < PART; i++) part[i] = rank * 100 + i;
        OK(unisono_gather(UNISONO_WORLD, part, rank == root ? all : NULL, PART, UNISONO_I32, root));
        if (rank == root) {
            for (int i = 0; i < PART * size; i++) CHECK(all[i] == i / PART * 100 + i % PART);
        }
        memset(part, 0, sizeof part);
        OK(unisono_scatter(UNISONO_WORLD, rank == root ? all : NULL, part, PART, UNISONO_I32, root));
        for (int i = 0; i < PART; i++) CHECK(part[i] == rank * 100 + i);
        if (rank != root) memset(part, 0, sizeof part);
        OK(unisono_broadcast(UNISONO_WORLD, part, PART, UNISONO_I32, root));
        for (int i = 0; i < PART; i++) CHECK(part[i] == root * 100 + i);
    }
    for (int i = 0; i < PART; i++) part[i] = rank * 100 + i;
    OK(unisono_all_gather(UNISONO_WORLD, part, all, PART, UNISONO_I32));
    for (int i = 0; i < PART * size; i++) CHECK(all[i] == i / PART * 100 + i % PART);
    for (int i = 0; i < PART * size; i++) all[i] = rank * 1000 + i;
    OK(unisono_all_to_all(UNISONO_WORLD, all, back, PART, UNISONO_I32));
    for (int i = 0; i < PART * size; i++) CHECK(back[i] == i / PART * 1000 + rank * PART + i % PART);
    OK(unisono_reduce_scatter(UNISONO_WORLD, all, part, PART, UNISONO_I32, UNISONO_MAX));
    for (int i = 0; i < PART; i++) CHECK(part[i] == (size - 1) * 1000 + rank * PART + i);
    free(all);
    free(back);
}

/* Parts of different lengths: rank r has r values, so rank 0 has none. */
static void varied(void) {
    size_t counts[16], equal[16];
    int64_t mine[16], all[136], back[136];
    int total = size * (size - 1) / 2;
    CHECK(size <= 16);
    for (int r = 0; r < size; r++) {
        counts[r] = (size_t)r;
        equal[r] = (size_t)rank;
    }
    for (int i = 0; i < rank; i++) mine[i] = rank * 100 + i;
    OK(unisono_all_gather_varied(UNISONO_WORLD, mine, all, counts, UNISONO_I64));
    for (int r = 0, at = 0; r < size; at += r, r++) {
        for (int i = 0; i < r; i++) CHECK(all[at + i] == r * 100 + i);
    }
    memset(all, 0, sizeof all);
    OK(unisono_gather_varied(UNISONO_WORLD, mine, all, counts, UNISONO_I64, 0));
    CHECK(rank != 0 || total == 0 || all[total - 1] == (size - 1) * 100 + size - 2);
    memset(mine, 0, sizeof mine);
    OK(unisono_scatter_varied(UNISONO_WORLD, all, mine, counts, UNISONO_I64, 0));
    for (int i = 0; i < rank; i++) CHECK(mine[i] == rank * 100 + i);
    for (int i = 0; i < total; i++) all[i] = i;
    OK(unisono_reduce_scatter_varied(UNISONO_WORLD, all, mine, counts, UNISONO_I64, UNISONO_SUM));
    for (int i = 0; i < rank; i++) CHECK(mine[i] == (int64_t)size * (rank * (rank - 1) / 2 + i));
    /* Rank r is sent r values, so every rank receives as many values from each member as its own rank. */
    for (int i = 0; i < total; i++) all[i] = rank * 1000 + i;
    OK(unisono_all_to_all_varied(UNISONO_WORLD, all, counts, back, equal, UNISONO_I64));
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < rank; i++) CHECK(back[r * rank + i] == r * 1000 + rank * (rank - 1) / 2 + i);
    }
}

static int64_t calls_done;

static void count_done(void *number) { calls_done += *(int64_t *)number; }

/* All collectives in the background at once: they run in the order in which they were started. */
static void background(void) {
    enum { PART = 3, VERBS = 9 };
    unisono_pending pending[VERBS];
    int64_t sums[PART], prefix[PART], roots[PART], copies[PART], part[PART], maxima[PART], one = 1;
    int64_t *all = (int64_t *)malloc(sizeof(int64_t) * PART * (size_t)size);
    int64_t *back = (int64_t *)malloc(sizeof(int64_t) * PART * (size_t)size);
    int64_t *again = (int64_t *)malloc(sizeof(int64_t) * PART * (size_t)size);
    CHECK(all != NULL && back != NULL && again != NULL);
    for (int i = 0; i < PART; i++) sums[i] = prefix[i] = roots[i] = copies[i] = rank * 100 + i;
    const unisono_group world = UNISONO_WORLD;
    OK(unisono_start_all_reduce(world, sums, PART, UNISONO_I64, UNISONO_SUM, &pending[0]));
    OK(unisono_start_reduce(world, roots, PART, UNISONO_I64, UNISONO_MAX, 0, &pending[1]));
    OK(unisono_start_all_gather(world, copies, all, PART, UNISONO_I64, &pending[2]));
    OK(unisono_start_all_to_all(world, all, back, PART, UNISONO_I64, &pending[3]));
    OK(unisono_start_gather(world, copies, rank == 0 ? again : NULL, PART, UNISONO_I64, 0, &pending[4]));
    OK(unisono_start_scatter(world, rank == 0 ? again : NULL, part, PART, UNISONO_I64, 0, &pending[5]));
    OK(unisono_start_reduce_scatter(world, all, maxima, PART, UNISONO_I64, UNISONO_MAX, &pending[6]));
    OK(unisono_start_broadcast(world, copies, PART, UNISONO_I64, size - 1, &pending[7]));
    OK(unisono_start_scan(world, prefix, PART, UNISONO_I64, UNISONO_SUM, &pending[8]));
    OK(unisono_pending_on_done(pending[7], count_done, &one));
    FAILS(unisono_pending_on_done(pending[7], NULL, &one), UNISONO_USAGE, "a function to call");
    FAILS(unisono_start_broadcast(world, copies, PART, UNISONO_I64, 0, NULL), UNISONO_USAGE, "a place for the handle");
    for (int i = VERBS - 1; i >= 0; i--) OK(unisono_pending_wait(pending[i], 0.0));
    FAILS(unisono_pending_on_done(pending[7], count_done, &one), UNISONO_USAGE, "freed");
    for (int i = 0; i < PART; i++) {
        CHECK(sums[i] == 100 * size * (size - 1) / 2 + size * i);
        CHECK(prefix[i] == 50 * (rank + 1) * rank + (rank + 1) * i);
        CHECK(roots[i] == (rank == 0 ? size - 1 : rank) * 100 + i);
        CHECK(part[i] == rank * 100 + i && maxima[i] == rank * 100 + i && copies[i] == (size - 1) * 100 + i);
        for (int r = 0; r < size; r++) {
            CHECK(all[r * PART + i] == r * 100 + i && back[r * PART + i] == rank * 100 + i);
        }
    }
    /* The next call in the background begins after the callback. */
    OK(unisono_start_broadcast(world, copies, PART, UNISONO_I64, 0, &pending[0]));
    OK(unisono_pending_wait(pending[0], 0.0));
    CHECK(calls_done == 1);
    free(all);
    free(back);
    free(again);
}

static void messages(void) {
    double out[3] = {rank + 0.5, 2, 3}, in[3] = {0, 0, 0};
    int32_t next = (rank + 1) % size, before = (rank + size - 1) % size;
    if (size == 1) return;
    OK(unisono_send(UNISONO_WORLD, out, 3, UNISONO_F64, next, 7));
    OK(unisono_recv(UNISONO_WORLD, in, 3, UNISONO_F64, before, 7));
    CHECK(in[0] == before + 0.5 && in[2] == 3);
    OK(unisono_send(UNISONO_WORLD, NULL, 0, UNISONO_U8, next, 8));
    OK(unisono_recv(UNISONO_WORLD, NULL, 0, UNISONO_U8, before, 8));
}

static void groups(void) {
    unisono_group halves, backwards, patient, same;
    int32_t members[16], number, count;
    int64_t x = 1;
    OK(unisono_group_split(UNISONO_WORLD, rank % 2, -rank, &halves));
    OK(unisono_group_size(halves, &count));
    CHECK(count == (size + (rank % 2 == 0)) / 2);
    OK(unisono_all_reduce(halves, &x, 1, UNISONO_I64, UNISONO_SUM));
    CHECK(x == count);
    OK(unisono_group_free(halves));
    FAILS(unisono_barrier(halves), UNISONO_USAGE, "freed");

    for (int i = 0; i < size; i++) members[i] = size - 1 - i;
    OK(unisono_group_new(UNISONO_WORLD, members, (size_t)size, &backwards));
    OK(unisono_group_rank(backwards, &number));
    CHECK(number == size - 1 - rank);
    OK(unisono_group_with_timeout(backwards, 60.0, &patient));
    OK(unisono_group_deterministic(patient, &same));
    OK(unisono_barrier(same));
    OK(unisono_group_free(backwards));
    OK(unisono_barrier(patient));

    OK(unisono_group_split(UNISONO_WORLD, rank == 0 ? -1 : 0, 0, &halves));
    CHECK((halves == UNISONO_NO_GROUP) == (rank == 0));
}

static void shared_memory(void) {
    void *memory;
    OK(unisono_memory_new(COUNT * sizeof(float), &memory));
    float *values = (float *)memory;
    for (int i = 0; i < COUNT; i++) values[i] = (float)(rank + i);
    OK(unisono_all_reduce(UNISONO_WORLD, values, COUNT, UNISONO_F32, UNISONO_SUM));
    for (int i = 0; i < COUNT; i++) CHECK(values[i] == (float)(size * (size - 1) / 2 + size * i));
    OK(unisono_memory_free(memory));
    FAILS(unisono_memory_free(memory), UNISONO_USAGE, "unisono_memory_new");
}

int main(void) {
    OK(unisono_init(120.0));
    OK(unisono_init(0.0));
    OK(unisono_rank(&rank));
    OK(unisono_size(&size));
    facts();
    reductions();
    moves();
    background();
    varied();
    messages();
    groups();
    shared_memory();
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_shutdown());
    OK(unisono_shutdown());
    printf("rank %d of %d: all well\n", (int)rank, (int)size);
    return 0;
}
