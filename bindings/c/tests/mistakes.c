/* Invalid calls: each returns a status and an error text, and the ranks continue. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static void *elsewhere(void *unused) {
    (void)unused;
    CHECK(strcmp(unisono_last_error(), "") == 0);
    FAILS(unisono_rank(NULL), UNISONO_USAGE, "NULL");
    return NULL;
}

/* Each thread has its own error text. */
static void texts_of_threads(void) {
    pthread_t thread;
    FAILS(unisono_barrier(99), UNISONO_USAGE, "handle 99");
    CHECK(pthread_create(&thread, NULL, elsewhere, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strstr(unisono_last_error(), "handle 99") != NULL);
}

/* A forked child may neither use its parent's world nor shut it down. Not for valgrind: at the child's exit it would search
 * the job's full memory for lost blocks. */
static void forked(int32_t size) {
    pid_t child = fork();
    int status = 0;
    CHECK(child >= 0);
    if (child == 0) {
        float x = 0;
        int rejected = unisono_all_reduce(UNISONO_WORLD, &x, 1, UNISONO_F32, UNISONO_SUM) == UNISONO_USAGE;
        int again = unisono_init(10.0);
        int left = unisono_shutdown();
        _exit(rejected && again == (size > 1 ? UNISONO_USAGE : UNISONO_OK) && left == UNISONO_OK ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Rank 1 rejects arguments of calls on tables: every rank gets its error, and all stay in step. */
static void rejected_by_rank_1(int32_t rank) {
    unisono_table table;
    int bad = rank == 1;
    int32_t dtype = bad ? 99 : UNISONO_F32;
    const char *target = bad ? NULL : "/tmp/unisono-never-written";
    FAILS(unisono_array_new(3, dtype, NULL, UNISONO_DEFAULTS, &table), UNISONO_USAGE, bad ? "99" : "on rank 1");
    FAILS(unisono_matrix_new(3, 2, dtype, NULL, UNISONO_DEFAULTS, &table), UNISONO_USAGE, bad ? "99" : "on rank 1");
    FAILS(unisono_array_new(3, UNISONO_F32, NULL, UNISONO_DEFAULTS, bad ? NULL : &table), UNISONO_USAGE,
          bad ? "NULL" : "on rank 1");
    FAILS(unisono_key_value_new(bad ? "str" : "int", 1, UNISONO_F32, UNISONO_DEFAULTS, &table), UNISONO_USAGE,
          bad ? "str" : "on rank 1");
    FAILS(unisono_save(target), UNISONO_USAGE, bad ? "NULL" : "on rank 1");
    FAILS(unisono_load(target), UNISONO_USAGE, bad ? "NULL" : "on rank 1");
    OK(unisono_array_new(3, UNISONO_F32, NULL, UNISONO_DEFAULTS, &table));
    OK(unisono_barrier(UNISONO_WORLD));
}

int main(int argc, char **argv) {
    int32_t rank = -7, size;
    float values[4] = {1, 2, 3, 4}, other[64];
    size_t counts[16] = {1, 1, 1, 1};
    unisono_group group;
    void *memory;
    const char *text;

    CHECK(strcmp(unisono_last_error(), "") == 0);
    FAILS(unisono_rank(&rank), UNISONO_USAGE, "call unisono_init first");
    CHECK(rank == -7);
    FAILS(unisono_barrier(UNISONO_WORLD), UNISONO_USAGE, "without a world");
    FAILS(unisono_memory_new(8, &memory), UNISONO_USAGE, "without a world");
    FAILS(unisono_init(-1.0), UNISONO_USAGE, "above 0 seconds");
    OK(unisono_shutdown());
    OK(unisono_init(120.0));
    OK(unisono_rank(&rank));
    OK(unisono_size(&size));

    FAILS(unisono_rank(NULL), UNISONO_USAGE, "NULL");
    FAILS(unisono_transport(NULL), UNISONO_USAGE, "NULL");
    FAILS(unisono_host(size, &text), UNISONO_USAGE, "rank below");
    FAILS(unisono_host(-1, &text), UNISONO_USAGE, "-1");
    FAILS(unisono_group_with_timeout(UNISONO_WORLD, 0.0, &group), UNISONO_USAGE, "above 0 seconds");
    FAILS(unisono_group_free(UNISONO_WORLD), UNISONO_USAGE, "handle 0");
    FAILS(unisono_memory_new(8, NULL), UNISONO_USAGE, "NULL");
    FAILS(unisono_memory_free(values), UNISONO_USAGE, "unisono_memory_new");
    OK(unisono_memory_free(NULL));

    /* Rejected on all ranks: the group continues to work. */
    FAILS(unisono_all_reduce(UNISONO_WORLD, NULL, 4, UNISONO_F32, UNISONO_SUM), UNISONO_USAGE, "NULL");
    FAILS(unisono_all_reduce(UNISONO_WORLD, values, 4, 99, UNISONO_SUM), UNISONO_USAGE, "dtype");
    FAILS(unisono_all_reduce(UNISONO_WORLD, values, 4, UNISONO_F32, 0), UNISONO_USAGE, "op such as");
    FAILS(unisono_all_reduce(UNISONO_WORLD, values, (size_t)-1, UNISONO_F32, UNISONO_SUM), UNISONO_USAGE,
          "fits in memory");
    FAILS(unisono_all_reduce(UNISONO_WORLD, values, 1, UNISONO_I32, UNISONO_AVG), UNISONO_USAGE, "avg");
    FAILS(unisono_broadcast(UNISONO_WORLD, values, 4, UNISONO_F32, size), UNISONO_USAGE, "root");
    FAILS(unisono_broadcast(UNISONO_WORLD, values, 4, UNISONO_F32, -1), UNISONO_USAGE, "-1");
    FAILS(unisono_all_gather(UNISONO_WORLD, other, other + 1, 4, UNISONO_F32), UNISONO_USAGE, "overlap");
    FAILS(unisono_all_gather_varied(UNISONO_WORLD, values, other, NULL, UNISONO_F32), UNISONO_USAGE, "count");
    counts[0] = (size_t)-1;
    counts[1] = 2;
    FAILS(unisono_all_to_all_varied(UNISONO_WORLD, values, counts, other, counts, UNISONO_F32), UNISONO_USAGE,
          "memory");
    FAILS(unisono_send(UNISONO_WORLD, values, 4, UNISONO_F32, size, 0), UNISONO_USAGE, "a rank below");
    FAILS(unisono_recv(UNISONO_WORLD, NULL, 4, UNISONO_F32, 0, 0), UNISONO_USAGE, "NULL");
    FAILS(unisono_group_new(UNISONO_WORLD, NULL, 1, &group), UNISONO_USAGE, "members");
    FAILS(unisono_group_new(UNISONO_WORLD, &size, 1, &group), UNISONO_USAGE, "different ranks");
    CHECK(values[0] == 1 && values[3] == 4);

    texts_of_threads();
    if (argc < 2 || strcmp(argv[1], "--no-fork") != 0) forked(size);
    OK(unisono_all_reduce(UNISONO_WORLD, values, 4, UNISONO_F32, UNISONO_SUM));
    CHECK(values[3] == (float)(4 * size));

    /* One rank makes a different call than the others: every rank gets an error, and nothing is changed. */
    if (size > 1) {
        int32_t status = rank == 0 ? unisono_broadcast(UNISONO_WORLD, values, 4, UNISONO_F32, 0)
                                   : unisono_all_reduce(UNISONO_WORLD, values, 4, UNISONO_F32, UNISONO_SUM);
        CHECK(status == UNISONO_USAGE);
        CHECK(strstr(unisono_last_error(), "differs between ranks") != NULL);
        CHECK(values[3] == (float)(4 * size));
        OK(unisono_barrier(UNISONO_WORLD));
        rejected_by_rank_1(rank);
    }
    OK(unisono_shutdown());
    FAILS(unisono_barrier(UNISONO_WORLD), UNISONO_USAGE, size > 1 ? "after shutdown" : "without a world");
    if (size > 1) {
        FAILS(unisono_init(10.0), UNISONO_USAGE, "has left it");
    } else {
        OK(unisono_init(10.0));
        OK(unisono_barrier(UNISONO_WORLD));
        OK(unisono_shutdown());
    }
    printf("rank %d of %d: all well\n", (int)rank, (int)size);
    return 0;
}
