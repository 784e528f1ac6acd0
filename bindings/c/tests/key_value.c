/* Key-value tables from C, with numbers and with bytes as keys. Compiles as C and as C++. */
#include "check.h"

static int32_t rank, size;

static void numbers(void) {
    unisono_table table;
    unisono_items items;
    unisono_pending pending;
    size_t count;
    int64_t ids[3] = {7, -5, 7}, mine[1] = {100 + rank};
    const int64_t *found;
    const void *values;
    uint8_t present[3];
    double delta[6] = {1, 2, 3, 4, 5, 6}, out[6];
    const char *text;
    unisono_keys keys = {ids, NULL, NULL, 3}, own = {mine, NULL, NULL, 1};

    OK(unisono_key_value_new("int", 2, UNISONO_F64, UNISONO_DEFAULTS, &table));
    OK(unisono_table_kind(table, &text));
    CHECK(strcmp(text, "key-value") == 0);
    OK(unisono_table_cols(table, &count));
    CHECK(count == 2);
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_key_value_get(table, &keys, out, 6));
    for (int i = 0; i < 6; i++) CHECK(out[i] == 0);
    OK(unisono_key_value_contains(table, &keys, present));
    CHECK(!present[0] && !present[1] && !present[2]);
    OK(unisono_barrier(UNISONO_WORLD));

    OK(unisono_key_value_add(table, &keys, delta, 6, UNISONO_DEFAULTS));
    OK(unisono_key_value_add_soon(table, &own, delta, 2, UNISONO_DEFAULTS));
    OK(unisono_key_value_start_add(table, &own, delta + 2, 2, UNISONO_DEFAULTS, &pending));
    OK(unisono_pending_wait(pending, 0.0));
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_key_value_start_get(table, &keys, out, 6, &pending));
    OK(unisono_pending_wait(pending, 0.0));
    CHECK(out[0] == 6 * size && out[1] == 8 * size && out[2] == 3 * size && out[4] == out[0] && out[5] == out[1]);
    ids[2] = 8;
    OK(unisono_key_value_contains(table, &keys, present));
    CHECK(present[0] && present[1] && !present[2]);
    OK(unisono_table_rows(table, &count));
    CHECK(count == 2 + (size_t)size);

    OK(unisono_key_value_items(table, &items));
    OK(unisono_items_count(items, &count));
    CHECK(count == 2 + (size_t)size);
    OK(unisono_items_numbers(items, &found));
    OK(unisono_items_values(items, &values));
    CHECK(found[0] == -5 && found[1] == 7 && found[2] == 100 && found[count - 1] == 99 + size);
    const double *rows = (const double *)values;
    CHECK(rows[0] == 3 * size && rows[2] == 6 * size && rows[4] == 4 && rows[5] == 6);
    FAILS(unisono_items_bytes(items, 0, &values, &count), UNISONO_USAGE, "bytes");
    OK(unisono_items_free(items));
    FAILS(unisono_items_count(items, &count), UNISONO_USAGE, "freed");

    FAILS(unisono_key_value_get(table, NULL, out, 6), UNISONO_USAGE, "keys");
    FAILS(unisono_key_value_get(table, &keys, out, 5), UNISONO_USAGE, "5");
    keys.numbers = NULL;
    FAILS(unisono_key_value_get(table, &keys, out, 6), UNISONO_USAGE, "numbers");
    FAILS(unisono_table_get(table, NULL, 0, out, 6), UNISONO_USAGE, "key_value");
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_table_tick(table));
    OK(unisono_table_free(table));
}

static void bytes(void) {
    unisono_table table, array;
    unisono_items items;
    const void *words[3] = {"to", "be", "to"}, *key;
    size_t lengths[3] = {2, 2, 2}, count, length;
    int64_t delta[3] = {1, 1, 1}, out[3];
    unisono_keys keys = {NULL, words, lengths, 3};
    OK(unisono_key_value_new("bytes", 1, UNISONO_I64, UNISONO_DEFAULTS, &table));
    OK(unisono_key_value_add(table, &keys, delta, 3, UNISONO_DEFAULTS));
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_key_value_get(table, &keys, out, 3));
    CHECK(out[0] == 2 * size && out[1] == size && out[2] == 2 * size);
    OK(unisono_key_value_items(table, &items));
    OK(unisono_items_count(items, &count));
    CHECK(count == 2);
    OK(unisono_items_bytes(items, 0, &key, &length));
    CHECK(length == 2 && memcmp(key, "be", 2) == 0);
    FAILS(unisono_items_bytes(items, 2, &key, &length), UNISONO_USAGE, "below 2");
    OK(unisono_items_free(items));
    FAILS(unisono_key_value_new("words", 1, UNISONO_I64, UNISONO_DEFAULTS, &table), UNISONO_USAGE, "bytes");
    keys.lengths = NULL;
    FAILS(unisono_key_value_get(table, &keys, out, 3), UNISONO_USAGE, "lengths");
    OK(unisono_array_new(1, UNISONO_I64, NULL, UNISONO_DEFAULTS, &array));
    FAILS(unisono_key_value_get(array, &keys, out, 3), UNISONO_USAGE, "kind array");
    OK(unisono_barrier(UNISONO_WORLD));
}

/* Keys that are deleted, and a table that evicts: every rank adds keys of its own, more than fit. */
static void limited(void) {
    unisono_options options;
    unisono_table table;
    unisono_items items;
    int64_t ids[20], ones[20];
    uint8_t present[20];
    uint64_t missed;
    size_t count, reported;
    const int64_t *found;
    unisono_keys keys = {ids, NULL, NULL, 20}, half = {ids, NULL, NULL, 10};
    OK(unisono_options_new(&options));
    OK(unisono_options_set_number(options, "max_rows", 40));
    OK(unisono_options_set_text(options, "eviction", "lfu"));
    FAILS(unisono_options_set_text(options, "eviction", "fifo"), UNISONO_USAGE, "lru or lfu");
    FAILS(unisono_options_set_number(options, "max_rows", 1.5), UNISONO_USAGE, "whole number");
    OK(unisono_key_value_new("int", 1, UNISONO_I64, options, &table));
    OK(unisono_options_free(options));
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 20; i++) ids[i] = (round * 20 + i) * size + rank, ones[i] = 1;
        OK(unisono_key_value_add(table, &keys, ones, 20, UNISONO_DEFAULTS));
        OK(unisono_table_rows(table, &count));
        CHECK(count <= 40);
    }
    OK(unisono_barrier(UNISONO_WORLD));
    if (rank == 0) {
        OK(unisono_key_value_evicted(table, &items, &missed));
        OK(unisono_items_count(items, &reported));
        OK(unisono_items_numbers(items, &found));
        CHECK(missed == 0 && reported + count >= (size_t)(200 * size) - 40 && found[0] >= 0);
        OK(unisono_items_free(items));
        OK(unisono_key_value_evicted(table, &items, &missed));
        OK(unisono_items_count(items, &reported));
        CHECK(reported == 0);
        OK(unisono_items_free(items));
    }
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_key_value_delete(table, &half));
    OK(unisono_key_value_delete_soon(table, &keys));
    OK(unisono_key_value_contains(table, &keys, present));
    for (int i = 0; i < 20; i++) CHECK(!present[i]);
    keys.numbers = NULL;
    FAILS(unisono_key_value_delete(table, &keys), UNISONO_USAGE, "numbers");
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_table_free(table));
}

/* Workers that make different numbers of rounds: a worker that has finished with a table blocks no other worker. */
static void unequal(void) {
    unisono_options options;
    unisono_table first, second;
    int64_t id = 3, one = 1, out = 0;
    unisono_keys keys = {&id, NULL, NULL, 1};
    OK(unisono_options_new(&options));
    OK(unisono_options_set_text(options, "consistency", "bsp"));
    OK(unisono_key_value_new("int", 1, UNISONO_I64, options, &first));
    OK(unisono_key_value_new("int", 1, UNISONO_I64, options, &second));
    OK(unisono_options_free(options));
    for (int i = 1; i <= 4 * (rank + 1); i++) {
        OK(unisono_key_value_add(first, &keys, &one, 1, UNISONO_DEFAULTS));
        OK(unisono_key_value_get(first, &keys, &out, 1));
        CHECK(i > 4 || out == i * size);
    }
    OK(unisono_key_value_add_soon(first, &keys, &one, 1, UNISONO_DEFAULTS));
    OK(unisono_table_finish(first));
    for (int i = 1; i <= 3; i++) {
        OK(unisono_key_value_add_soon(second, &keys, &one, 1, UNISONO_DEFAULTS));
        OK(unisono_table_flush(second));
        OK(unisono_key_value_get(second, &keys, &out, 1));
        CHECK(out == i * size);
    }
    OK(unisono_table_finish(second));
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_key_value_get(first, &keys, &out, 1));
    CHECK(out == 2 * size * (size + 1) + size);
    OK(unisono_barrier(UNISONO_WORLD));
    OK(unisono_table_free(first));
    FAILS(unisono_table_finish(first), UNISONO_USAGE, "freed");
    FAILS(unisono_table_flush(0), UNISONO_USAGE, "a table");
    OK(unisono_table_free(second));
}

int main(void) {
    OK(unisono_init(120.0));
    OK(unisono_rank(&rank));
    OK(unisono_size(&size));
    numbers();
    bytes();
    limited();
    unequal();
    OK(unisono_shutdown());
    printf("rank %d of %d: all well\n", (int)rank, (int)size);
    return 0;
}
