/* Random arguments, most of them invalid: every call returns a status and, if it failed, an error text; none crashes. Counts
 * are wrong only together with NULL, or beyond all memory: a library cannot know how large a buffer is. */
#include <stdint.h>

#include "check.h"

#define ROWS 4
#define COLS 3

static uint64_t state;

static uint64_t random_number(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t one_of(const uint64_t *values, size_t count) {
    return values[random_number() % count];
}

#define DRAW(...) one_of((const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static double buffer[256];

/* A buffer and a count: both valid, or an error that must be detected. */
static void *some_memory(size_t *count) {
    switch (random_number() % 4) {
    case 0:
        *count = DRAW(1, 7, SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8 + 1);
        return NULL;
    case 1:
        *count = DRAW(SIZE_MAX, SIZE_MAX / 2 + 1);
        return buffer;
    default:
        *count = random_number() % 13;
        return buffer;
    }
}

static const char *some_text(void) {
    static const char *texts[] = {"",     "sgd",     "adam",      "bsp:backup=99", "ssp:-1", "ssp:99999999999999999999",
                                  "int8", "topk:7",  "\xff\xfe",  "updater",       "name",   "consistency",
                                  "init", "uniform", "learning_rate", "bytes",     "int",    "worker"};
    size_t count = sizeof texts / sizeof *texts;
    size_t choice = random_number() % (count + 1);
    return choice == count ? NULL : texts[choice];
}

static double some_real(void) {
    static const double values[] = {0.0, -1.0, 1.0, 0.5, 1e308, -1e308, 1e-320, 1e19};
    double zero = 0.0;
    size_t choice = random_number() % 10;
    return choice < 8 ? values[choice] : choice == 8 ? zero / zero : 1.0 / zero;
}

int main(int argc, char **argv) {
    uint64_t turns = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000, failed = 0, turn;
    unisono_table array, matrix, words;
    (void)argv;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) : 88172645463325252u;
    OK(unisono_init(20.0));
    OK(unisono_tables_join("both"));
    OK(unisono_array_new(ROWS * COLS, UNISONO_F32, NULL, UNISONO_DEFAULTS, &array));
    OK(unisono_matrix_new(ROWS, COLS, UNISONO_F64, NULL, UNISONO_DEFAULTS, &matrix));
    OK(unisono_key_value_new("int", COLS, UNISONO_F32, UNISONO_DEFAULTS, &words));
    for (turn = 0; turn < turns; turn++) {
        size_t count, length;
        void *memory = some_memory(&count);
        int64_t rows[4] = {(int64_t)DRAW(0, 3, 4, UINT64_MAX, INT64_MAX), 1, 2, (int64_t)DRAW(0, 1, INT64_MAX)};
        uint64_t handle = DRAW(0, array, matrix, words, 1, 99, UINT64_MAX), options = UNISONO_DEFAULTS, made;
        int32_t dtype = (int32_t)DRAW(1, 2, 3, 8, 0, 9, UINT64_MAX, INT32_MAX), small = (int32_t)DRAW(0, 1, 5, UINT64_MAX, INT32_MAX);
        unisono_keys keys = {DRAW(0, 1) ? rows : NULL, NULL, NULL, DRAW(0, 1, 3, SIZE_MAX)};
        int32_t status = UNISONO_OK;
        if (keys.numbers != NULL && keys.count > 4)
            keys.numbers = NULL;
        switch (random_number() % 17) {
        case 0: status = unisono_all_reduce(handle, memory, count, dtype, small); break;
        case 1: status = unisono_broadcast(handle, memory, count, dtype, small); break;
        case 2: status = unisono_gather(handle, memory, memory == NULL ? NULL : buffer + 128, count, dtype, small); break;
        case 3: status = unisono_all_gather(handle, memory, memory == NULL ? NULL : buffer + 128, count, dtype); break;
        case 4: status = unisono_send(handle, memory, count, dtype, (int32_t)DRAW(5, UINT64_MAX, INT32_MAX), small); break;
        case 5: status = unisono_table_get(handle, DRAW(0, 1) ? rows : NULL, DRAW(0, 1, 4), memory, count); break;
        case 6: status = unisono_table_add(handle, DRAW(0, 1) ? rows : NULL, DRAW(0, 1, 4), memory, count, options); break;
        case 7: status = unisono_key_value_get(words, &keys, memory, count); break;
        case 8: status = unisono_key_value_add(handle, &keys, memory, count, options); break;
        case 9:
            OK(unisono_options_new(&options));
            status = unisono_options_set_text(options, some_text(), some_text());
            status |= unisono_options_set_number(options, some_text(), some_real());
            if (status == UNISONO_OK && unisono_matrix_new(DRAW(0, 1, SIZE_MAX), DRAW(0, 2, SIZE_MAX), dtype, NULL, options, &made) == UNISONO_OK)
                OK(unisono_table_free(made));
            OK(unisono_options_free(options));
            break;
        case 10: status = unisono_group_new(handle, DRAW(0, 1) ? &small : NULL, DRAW(0, 1), &made);
            if (status == UNISONO_OK && made != UNISONO_NO_GROUP)
                OK(unisono_group_free(made));
            break;
        case 11: status = unisono_group_with_timeout(handle, some_real(), &made);
            if (status == UNISONO_OK)
                OK(unisono_group_free(made));
            break;
        case 12: status = unisono_table_rows(handle, DRAW(0, 1) ? &length : NULL); break;
        case 13: status = unisono_worker_rank(small, DRAW(0, 1) ? &dtype : NULL); break;
        case 15:
            status = unisono_start_all_reduce(handle, memory, count, dtype, small, DRAW(0, 1) ? NULL : &made);
            if (status == UNISONO_OK) status = unisono_pending_wait(made, DRAW(0, 0, 1) ? some_real() : 0.0);
            if (status == UNISONO_TIMEOUT) OK(unisono_pending_wait(made, 0.0));
            break;
        case 14: status = unisono_memory_free(DRAW(0, 1) ? NULL : buffer); break;
        default: status = unisono_save(DRAW(0, 1) ? NULL : "/dev/null/nowhere"); break;
        }
        CHECK(status >= UNISONO_OK && status < 64);
        failed += status != UNISONO_OK;
        CHECK(status == UNISONO_OK || strlen(unisono_last_error()) > 10);
    }
    CHECK(failed > turns / 4 && failed < turns);
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_shutdown());
    puts("all well");
    return 0;
}
