/* Tables from C: arrays, matrices and sparse matrices compared with a loop, options, background calls. */
#include "check.h"

static int32_t rank, size;

static void arrays(void) {
    enum { SIZE = 1003 };
    static double first[SIZE], delta[SIZE], values[SIZE];
    unisono_table table;
    size_t rows, cols;
    int32_t dtype;
    const char *text;
    for (int i = 0; i < SIZE; i++) {
        first[i] = rank * 1000 + i; /* Those of worker 0 win. */
        delta[i] = i + 1;
    }
    OK(unisono_array_new(SIZE, UNISONO_F64, first, UNISONO_DEFAULTS, &table));
    OK(unisono_table_rows(table, &rows));
    OK(unisono_table_cols(table, &cols));
    OK(unisono_table_dtype(table, &dtype));
    CHECK(rows == SIZE && cols == 1 && dtype == UNISONO_F64);
    OK(unisono_table_kind(table, &text));
    CHECK(strcmp(text, "array") == 0);
    OK(unisono_table_updater(table, &text));
    CHECK(strcmp(text, "add") == 0);
    OK(unisono_table_consistency(table, &text));
    CHECK(strcmp(text, "async") == 0);
    OK(unisono_table_name(table, &text));
    CHECK(strlen(text) > 0);

    for (int round = 1; round <= 10; round++) {
        OK(unisono_table_add(table, NULL, 0, delta, SIZE, UNISONO_DEFAULTS));
        OK(unisono_table_add_soon(table, NULL, 0, delta, SIZE, UNISONO_DEFAULTS));
        OK(unisono_barrier(UNISONO_WORLD));
        OK(unisono_table_get(table, NULL, 0, values, SIZE));
        for (int i = 0; i < SIZE; i++) CHECK(values[i] == i + 2.0 * round * size * (i + 1));
        OK(unisono_barrier(UNISONO_WORLD));
    }

    /* An array is read and modified as a unit. */
    int64_t ids[1] = {0};
    FAILS(unisono_table_add(table, ids, 1, delta, 1, UNISONO_DEFAULTS), UNISONO_USAGE, "a list of rows");
    OK(unisono_table_free(table));
    FAILS(unisono_table_get(table, NULL, 0, values, SIZE), UNISONO_USAGE, "freed");

    /* The smallest possible array. */
    OK(unisono_array_new(1, UNISONO_F64, NULL, UNISONO_DEFAULTS, &table));
    OK(unisono_table_add(table, NULL, 0, delta, 1, UNISONO_DEFAULTS));
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_table_get(table, NULL, 0, values, 1));
    CHECK(values[0] == size);
    OK(unisono_barrier(UNISONO_WORLD));
}

static void matrices(void) {
    enum { ROWS = 11, COLS = 10 };
    static int32_t all[ROWS * COLS], some[4 * COLS], values[ROWS * COLS];
    int64_t ids[4] = {0, 1, 5, 10};
    unisono_table table;
    for (int i = 0; i < ROWS * COLS; i++) all[i] = i + 1;
    for (int i = 0; i < 4 * COLS; i++) some[i] = all[ids[i / COLS] * COLS + i % COLS];
    OK(unisono_matrix_new(ROWS, COLS, UNISONO_I32, NULL, UNISONO_DEFAULTS, &table));
    for (int round = 1; round <= 20; round++) {
        const void *separate[2] = {some, some + COLS};
        OK(unisono_table_add_soon(table, NULL, 0, all, ROWS * COLS, UNISONO_DEFAULTS));
        OK(unisono_table_add_separate(table, ids, 2, separate, UNISONO_DEFAULTS));
        OK(unisono_table_add_soon(table, ids + 2, 2, some + 2 * COLS, 2 * COLS, UNISONO_DEFAULTS));
        OK(unisono_barrier(UNISONO_WORLD));
        OK(unisono_table_get(table, NULL, 0, values, ROWS * COLS));
        for (int i = 0; i < ROWS * COLS; i++) {
            int row = i / COLS, twice = row == 0 || row == 1 || row == 5 || row == 10;
            CHECK(values[i] == (i + 1) * round * size * (1 + twice));
        }
        int32_t one[COLS], two[COLS];
        void *places[2] = {one, two};
        OK(unisono_table_get_separate(table, ids + 2, 2, places));
        CHECK(memcmp(one, values + 5 * COLS, sizeof one) == 0 && memcmp(two, values + 10 * COLS, sizeof two) == 0);
        OK(unisono_barrier(UNISONO_WORLD));
    }
}

static void background(void) {
    enum { SIZE = 500 };
    static float delta[SIZE], one[SIZE], other[SIZE];
    unisono_table table;
    unisono_pending add, get, again;
    int32_t done;
    for (int i = 0; i < SIZE; i++) delta[i] = (float)i;
    OK(unisono_array_new(SIZE, UNISONO_F32, NULL, UNISONO_DEFAULTS, &table));
    OK(unisono_table_start_add(table, NULL, 0, delta, SIZE, UNISONO_DEFAULTS, &add));
    OK(unisono_pending_wait(add, 0.0));
    FAILS(unisono_pending_wait(add, 0.0), UNISONO_USAGE, "freed");
    OK(unisono_barrier(UNISONO_WORLD));
    /* Several gets may be in flight. */
    OK(unisono_table_start_get(table, NULL, 0, one, SIZE, &get));
    OK(unisono_table_start_get(table, NULL, 0, other, SIZE, &again));
    OK(unisono_pending_wait(again, 60.0));
    OK(unisono_pending_done(get, &done));
    CHECK(done == 1);
    OK(unisono_pending_wait(get, 0.0));
    for (int i = 0; i < SIZE; i++) CHECK(one[i] == (float)(i * size) && other[i] == one[i]);
    FAILS(unisono_pending_done(table, &done), UNISONO_USAGE, "another kind");

    /* A rejected call reports its error when it is waited for, or at once. */
    int32_t status = unisono_table_start_get(table, NULL, 0, one, SIZE - 1, &get);
    if (status == UNISONO_OK) status = unisono_pending_wait(get, 0.0);
    CHECK(status == UNISONO_USAGE && strstr(unisono_last_error(), "500") != NULL);
    OK(unisono_barrier(UNISONO_WORLD));
    /* A call that is never waited for: shutdown waits for it. */
    OK(unisono_table_start_get(table, NULL, 0, other, SIZE, &get));
}

static void options(void) {
    unisono_options options, per_add;
    unisono_table table;
    const char *text;
    float delta[2] = {1, 2}, values[2], random[64], again[64];

    OK(unisono_options_new(&options));
    OK(unisono_options_set_text(options, "name", "weights"));
    OK(unisono_options_set_text(options, "updater", "momentum"));
    OK(unisono_options_set_text(options, "consistency", "bsp"));
    OK(unisono_options_set_number(options, "momentum", 0.5));
    OK(unisono_options_set_number(options, "init", 8.0));
    OK(unisono_array_new(2, UNISONO_F32, NULL, options, &table));
    OK(unisono_table_name(table, &text));
    CHECK(strcmp(text, "weights") == 0);
    OK(unisono_table_updater(table, &text));
    CHECK(strcmp(text, "momentum") == 0);
    OK(unisono_table_consistency(table, &text));
    CHECK(strcmp(text, "bsp") == 0);

    /* A round is one step with the sum of all workers' deltas: v = 0.5 v + sum and w -= v. */
    float v = 0, w = 8;
    for (int round = 0; round < 2; round++) {
        v = 0.5f * v + delta[1] * (float)size;
        w -= v;
        OK(unisono_table_add(table, NULL, 0, delta, 2, UNISONO_DEFAULTS));
        OK(unisono_table_get(table, NULL, 0, values, 2));
        CHECK(values[1] == w);
    }
    /* An add may override the updater's number: here no momentum of earlier steps. */
    OK(unisono_options_new(&per_add));
    OK(unisono_options_set_number(per_add, "momentum", 0.0));
    OK(unisono_table_add(table, NULL, 0, delta, 2, per_add));
    OK(unisono_table_get(table, NULL, 0, values, 2));
    CHECK(values[1] == w - 2.0f * (float)size);
    OK(unisono_options_free(per_add));
    OK(unisono_options_free(options));
    FAILS(unisono_options_free(options), UNISONO_USAGE, "freed");

    /* A row that one add lists twice: one step with the sum, or two steps. */
    const char *ways[2] = {"sum", "each"};
    const float expected[2] = {-2.0f, -2.9f};
    const int64_t twice[2] = {1, 1};
    const float ones[2] = {1, 1};
    for (int way = 0; way < 2; way++) {
        OK(unisono_options_new(&options));
        OK(unisono_options_set_text(options, "updater", "momentum"));
        OK(unisono_options_set_text(options, "repeats", ways[way]));
        OK(unisono_matrix_new(2, 1, UNISONO_F32, NULL, options, &table));
        if (rank == 0) OK(unisono_table_add(table, twice, 2, ones, 2, UNISONO_DEFAULTS));
        OK(unisono_barrier(0));
        OK(unisono_table_get(table, NULL, 0, values, 2));
        CHECK(values[1] > expected[way] - 1e-5f && values[1] < expected[way] + 1e-5f);
        OK(unisono_options_free(options));
        OK(unisono_barrier(0));
    }

    OK(unisono_options_new(&options));
    OK(unisono_options_set_text(options, "init", "uniform"));
    OK(unisono_options_set_number(options, "low", -0.5));
    OK(unisono_options_set_number(options, "high", 0.5));
    OK(unisono_options_set_number(options, "seed", 7));
    OK(unisono_matrix_new(8, 8, UNISONO_F32, NULL, options, &table));
    OK(unisono_table_get(table, NULL, 0, random, 64));
    OK(unisono_matrix_new(4, 16, UNISONO_F32, NULL, options, &table));
    OK(unisono_table_get(table, NULL, 0, again, 64));
    CHECK(memcmp(random, again, sizeof random) == 0);
    for (int i = 0; i < 64; i++) CHECK(random[i] >= -0.5f && random[i] < 0.5f);
    OK(unisono_options_set_number(options, "mean", 1));
    FAILS(unisono_array_new(8, UNISONO_F32, NULL, options, &table), UNISONO_USAGE, "\"mean\"");
    OK(unisono_options_free(options));
}

/* The table of Multiverso's matrix test: synchronous rounds, a sparse and a dense table, rows. */
static void sparse(void) {
    enum { ROWS = 11, COLS = 359, ROUNDS = 50 };
    static int32_t all[ROWS * COLS], some[4 * COLS], values[ROWS * COLS], thin[COLS];
    int64_t ids[4] = {0, 1, 3, 7}, changed[ROWS];
    unisono_options options;
    unisono_table table, dense;
    size_t count;
    for (int i = 0; i < ROWS * COLS; i++) all[i] = i + 1;
    for (int i = 0; i < 4 * COLS; i++) some[i] = all[ids[i / COLS] * COLS + i % COLS];
    OK(unisono_options_new(&options));
    OK(unisono_options_set_text(options, "consistency", "bsp"));
    OK(unisono_options_set_number(options, "pipelined", 1));
    OK(unisono_sparse_matrix_new(ROWS, COLS, UNISONO_I32, NULL, options, &table));
    OK(unisono_matrix_new(1, COLS, UNISONO_I32, NULL, options, &dense));
    for (int round = 1; round <= ROUNDS; round++) {
        OK(unisono_table_add(table, NULL, 0, all, ROWS * COLS, UNISONO_DEFAULTS));
        OK(unisono_table_get(table, NULL, 0, values, ROWS * COLS));
        OK(unisono_table_add(dense, NULL, 0, all, COLS, UNISONO_DEFAULTS));
        OK(unisono_table_get(dense, NULL, 0, thin, COLS));
        OK(unisono_table_add(table, ids, 4, some, 4 * COLS, UNISONO_DEFAULTS));
        OK(unisono_table_get_changed(table, 0, NULL, 0, values, ROWS * COLS, changed, &count));
        CHECK(count == ROWS);
        for (int i = 0; i < COLS; i++) CHECK(thin[i] == (i + 1) * round * size);
        for (int i = 0; i < ROWS * COLS; i++) {
            int row = i / COLS, twice = row == 0 || row == 1 || row == 3 || row == 7;
            CHECK(values[i] == (i + 1) * round * size * (1 + twice));
        }
    }
    /* Only the rows that changed since the last call are returned. */
    OK(unisono_table_add(table, ids + 2, 1, some, COLS, UNISONO_DEFAULTS));
    memset(values, 0, sizeof values);
    OK(unisono_table_get_changed(table, 0, NULL, 0, values, ROWS * COLS, changed, &count));
    CHECK(count == 1 && changed[0] == 3 && values[0] == 0 && values[3 * COLS] != 0);
    OK(unisono_table_get_changed(table, 1, NULL, 0, values, ROWS * COLS, NULL, &count));
    CHECK(count == ROWS);
    FAILS(unisono_table_get_changed(table, 2, NULL, 0, values, ROWS * COLS, NULL, &count), UNISONO_USAGE, "2");
    FAILS(unisono_table_get_changed(dense, 0, NULL, 0, values, COLS, NULL, &count), UNISONO_USAGE, "sparse");
    OK(unisono_options_free(options));
    OK(unisono_barrier(UNISONO_WORLD));
}

/* Workers that make different numbers of rounds: a worker that has finished blocks no other worker. */
static void unequal(void) {
    unisono_options options;
    unisono_table table;
    float one = 1, value = 0;
    OK(unisono_options_new(&options));
    OK(unisono_options_set_text(options, "consistency", "ssp:2"));
    OK(unisono_array_new(1, UNISONO_F32, NULL, options, &table));
    for (int i = 0; i < 10; i++) {
        OK(unisono_table_add(table, NULL, 0, &one, 1, UNISONO_DEFAULTS));
        OK(unisono_table_tick(table));
        OK(unisono_table_get(table, NULL, 0, &value, 1));
        CHECK(value >= i + 1 && value <= 10 * size);
    }
    uint64_t histogram[64], gets = 0;
    size_t count;
    OK(unisono_table_staleness(table, histogram, 64, &count));
    CHECK(count <= 3);
    for (size_t i = 0; i < count; i++) gets += histogram[i];
    CHECK(gets == 10);
    uint64_t steps = 0;
    OK(unisono_table_clock(table, &steps));
    CHECK(steps == 10);
    OK(unisono_table_staleness(table, NULL, 0, &count));

    OK(unisono_options_set_text(options, "consistency", "bsp"));
    OK(unisono_array_new(1, UNISONO_F32, NULL, options, &table));
    OK(unisono_options_free(options));
    for (int i = 0; i < 10 * (rank + 1); i++) {
        OK(unisono_table_add(table, NULL, 0, &one, 1, UNISONO_DEFAULTS));
        OK(unisono_table_get(table, NULL, 0, &value, 1));
    }
    OK(unisono_table_finish(table));
    OK(unisono_finish());
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_table_get(table, NULL, 0, &value, 1));
    CHECK(value == 5 * size * (size + 1));
    OK(unisono_barrier(UNISONO_WORLD));
}

static void mistakes(void) {
    unisono_table table, other;
    unisono_options options;
    double values[6] = {0};
    int64_t ids[2] = {0, 3};
    size_t rows;

    FAILS(unisono_array_new(0, UNISONO_F64, NULL, UNISONO_DEFAULTS, &table), UNISONO_USAGE, "at least one element");
    FAILS(unisono_array_new(3, UNISONO_F64, NULL, UNISONO_DEFAULTS, NULL), UNISONO_USAGE, "NULL");
    FAILS(unisono_array_new(3, UNISONO_F64, NULL, 12345, &table), UNISONO_USAGE, "options");
    FAILS(unisono_array_new(3, 77, NULL, UNISONO_DEFAULTS, &table), UNISONO_USAGE, "dtype");
    FAILS(unisono_array_new(3, UNISONO_U8, NULL, UNISONO_DEFAULTS, &table), UNISONO_USAGE, "float32");
    FAILS(unisono_matrix_new((size_t)-1, 8, UNISONO_F64, NULL, UNISONO_DEFAULTS, &table), UNISONO_USAGE, "memory");
    OK(unisono_options_new(&options));
    FAILS(unisono_options_set_text(options, "updater", "adagard"), UNISONO_USAGE, "adagrad");
    FAILS(unisono_options_set_text(options, "consistency", "sometimes"), UNISONO_USAGE, "ssp:3");
    FAILS(unisono_options_set_text(options, "compression", "zip"), UNISONO_USAGE, "topk");
    FAILS(unisono_options_set_text(options, "init", "7"), UNISONO_USAGE, "uniform");
    FAILS(unisono_options_set_text(options, "repeats", "twice"), UNISONO_USAGE, "sum or each");
    FAILS(unisono_options_set_text(options, "colour", "red"), UNISONO_USAGE, "consistency");
    FAILS(unisono_options_set_text(options, NULL, "red"), UNISONO_USAGE, "NULL");
    FAILS(unisono_options_set_text(options, "name", "\xff"), UNISONO_USAGE, "UTF-8");
    FAILS(unisono_options_set_number(options, "learning_rat", 1), UNISONO_USAGE, "lr, momentum");
    FAILS(unisono_options_set_number(options, "learning_rate", 0.0 / 0.0), UNISONO_USAGE, "finite");
    OK(unisono_options_set_number(options, "reject_nan", 1));
    OK(unisono_options_set_text(options, "name", "only one of this name"));
    OK(unisono_matrix_new(3, 2, UNISONO_F64, NULL, options, &table));
    FAILS(unisono_matrix_new(3, 2, UNISONO_F64, NULL, options, &other), UNISONO_USAGE, "only one of this name");
    FAILS(unisono_table_rows(options, &rows), UNISONO_USAGE, "another kind");
    OK(unisono_options_free(options));

    FAILS(unisono_table_get(table, NULL, 0, values, 5), UNISONO_USAGE, "6 elements");
    FAILS(unisono_table_get(table, NULL, 0, NULL, 6), UNISONO_USAGE, "NULL");
    FAILS(unisono_table_get(table, ids, 2, values, 4), UNISONO_USAGE, "3 at position 1");
    FAILS(unisono_table_get(table, NULL, 2, values, 4), UNISONO_USAGE, "row ids");
    FAILS(unisono_table_add(table, ids, 2, values, 4, UNISONO_DEFAULTS), UNISONO_USAGE, "3 at position 1");
    ids[1] = -1;
    FAILS(unisono_table_add_soon(table, ids, 2, values, 4, UNISONO_DEFAULTS), UNISONO_USAGE, "-1 at position 1");
    FAILS(unisono_table_add_separate(table, ids, 1, NULL, UNISONO_DEFAULTS), UNISONO_USAGE, "NULL");
    void *nowhere[1] = {NULL};
    FAILS(unisono_table_get_separate(table, ids, 1, nowhere), UNISONO_USAGE, "NULL");
    values[3] = 0.0 / 0.0;
    FAILS(unisono_table_add(table, NULL, 0, values, 6, UNISONO_DEFAULTS), UNISONO_USAGE, "NaN at row 1, column 1");
    FAILS(unisono_tables_join("both"), UNISONO_USAGE, "has its role");
    OK(unisono_table_get(table, NULL, 0, values, 6));
    for (int i = 0; i < 6; i++) CHECK(values[i] == 0);
    OK(unisono_table_with_timeout(table, 60.0, &other));
    OK(unisono_table_free(table));
    OK(unisono_table_get(other, NULL, 0, values, 6));
    OK(unisono_barrier(UNISONO_WORLD));
}

/* A checkpoint restores the values and the state of the updater; a damaged one changes nothing. */
static void checkpoints(void) {
    unisono_options options;
    unisono_table table;
    double delta[4] = {1, 2, 3, 4}, before[4], after[4];
    const char *folder = getenv("CHECK_FOLDER");
    if (folder == NULL) return;
    OK(unisono_options_new(&options));
    OK(unisono_options_set_text(options, "updater", "adam"));
    OK(unisono_array_new(4, UNISONO_F64, NULL, options, &table));
    OK(unisono_table_add(table, NULL, 0, delta, 4, UNISONO_DEFAULTS));
    FAILS(unisono_save(NULL), UNISONO_USAGE, "NULL");
    OK(unisono_save(folder));
    OK(unisono_table_get(table, NULL, 0, before, 4));
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_table_add(table, NULL, 0, delta, 4, UNISONO_DEFAULTS));
    OK(unisono_load(folder));
    OK(unisono_table_get(table, NULL, 0, after, 4));
    CHECK(memcmp(before, after, sizeof before) == 0);
    CHECK(unisono_load("no/such/folder") != UNISONO_OK);
    OK(unisono_table_get(table, NULL, 0, after, 4));
    CHECK(memcmp(before, after, sizeof before) == 0);
    OK(unisono_table_free(table));
    OK(unisono_options_free(options));
    OK(unisono_barrier(UNISONO_WORLD));
}

int main(void) {
    int32_t number;
    OK(unisono_init(120.0));
    OK(unisono_restarts(&number));
    CHECK(number == 0);
    OK(unisono_resume());
    OK(unisono_rank(&rank));
    OK(unisono_size(&size));
    FAILS(unisono_workers(&number), UNISONO_USAGE, "unisono_tables_join");
    FAILS(unisono_tables_join("boss"), UNISONO_USAGE, "server");
    checkpoints();
    arrays();
    OK(unisono_workers(&number));
    CHECK(number == size);
    OK(unisono_worker_id(&number));
    CHECK(number == rank);
    OK(unisono_server_rank(size - 1, &number));
    CHECK(number == size - 1);
    OK(unisono_worker_rank(size, &number));
    CHECK(number == -1);
    matrices();
    options();
    sparse();
    mistakes();
    unequal();
    background();
    OK(unisono_shutdown());
    FAILS(unisono_pending_wait(1, 0.0), UNISONO_USAGE, "after init and before shutdown");
    printf("rank %d of %d: all well\n", (int)rank, (int)size);
    return 0;
}
