/* A program for Multiverso with -sync=true: synchronous rounds, and workers that make different numbers of them. */
#include <multiverso/c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                     \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)

/* The common rounds first: every get sees the same adds of all workers. */
static void matrix(int workers) {
    enum { ROWS = 11, COLS = 3592, ROUNDS = 20 };
    static float all[ROWS * COLS], some[4 * COLS], values[ROWS * COLS];
    int ids[4] = {0, 1, 3, 7};
    TableHandler table, thin;
    for (int i = 0; i < ROWS * COLS; i++) all[i] = (float)(i + 1);
    for (int i = 0; i < 4 * COLS; i++) some[i] = all[ids[i / COLS] * COLS + i % COLS];
    MV_NewMatrixTable(ROWS, COLS, &table);
    MV_NewMatrixTable(1, COLS, &thin);
    for (int count = 1; count <= ROUNDS; count++) {
        MV_AddMatrixTableAll(table, all, ROWS * COLS);
        MV_GetMatrixTableAll(table, values, ROWS * COLS);
        MV_AddMatrixTableAll(thin, all, COLS);
        MV_GetMatrixTableAll(thin, values, COLS);
        for (int i = 0; i < COLS; i++) CHECK(values[i] == (float)((i + 1) * count * workers));
        MV_AddMatrixTableByRows(table, some, 4 * COLS, ids, 4);
        MV_GetMatrixTableByRows(table, values, 4 * COLS, ids, 4);
        for (int i = 0; i < 4 * COLS; i++) CHECK(values[i] == some[i] * (float)(2 * count * workers));
    }
}

static void array(int id) {
    enum { SIZE = 500 };
    static float delta[SIZE], values[SIZE];
    TableHandler table;
    MV_NewArrayTable(SIZE, &table);
    for (int i = 0; i < 10 * (id + 10); i++) {
        for (int j = 0; j < SIZE; j++) delta[j] = (float)i;
        for (int k = 0; k < 3; k++) MV_AddArrayTable(table, delta, SIZE);
        for (int k = 0; k < 3; k++) MV_GetArrayTable(table, values, SIZE);
        for (int j = 1; j < SIZE; j++) CHECK(values[j] == values[0]);
    }
}

int main(int argc, char **argv) {
    int before = argc;
    MV_Init(&argc, argv);
    CHECK(before == 6 && argc == 4);
    CHECK(strcmp(argv[1], "data-file") == 0 && strcmp(argv[2], "--sync=false") == 0 && strcmp(argv[3], "-x=1") == 0);
    int id = MV_WorkerId(), workers = MV_NumWorkers();
    matrix(workers);
    array(id);
    MV_ShutDown();
    printf("worker %d of %d: all well\n", id, workers);
    return 0;
}
