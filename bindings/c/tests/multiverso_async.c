/* A program for Multiverso: asynchronous arrays and matrices, as in its own tests. Compiles as C and as C++. */
#include <multiverso/c_api.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                     \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)

static void array(int workers) {
    enum { SIZE = 10000 };
    static float delta[SIZE], values[SIZE];
    TableHandler table;
    for (int i = 0; i < SIZE; i++) delta[i] = (float)(i + 1);
    MV_NewArrayTable(SIZE, &table);
    MV_Barrier();
    for (int round = 1; round <= 20; round++) {
        MV_AddAsyncArrayTable(table, delta, SIZE);
        MV_AddArrayTable(table, delta, SIZE);
        MV_Barrier();
        MV_GetArrayTable(table, values, SIZE);
        for (int i = 0; i < SIZE; i++) CHECK(values[i] == (float)(i + 1) * (float)(round * 2 * workers));
        MV_Barrier();
    }
}

static void matrix(int workers) {
    enum { ROWS = 11, COLS = 10 };
    float all[ROWS * COLS], some[4 * COLS], values[ROWS * COLS];
    int ids[4] = {0, 1, 5, 10};
    TableHandler table;
    for (int i = 0; i < ROWS * COLS; i++) all[i] = (float)i;
    for (int i = 0; i < 4 * COLS; i++) some[i] = all[ids[i / COLS] * COLS + i % COLS];
    MV_NewMatrixTable(ROWS, COLS, &table);
    MV_Barrier();
    for (int round = 1; round <= 20; round++) {
        MV_AddAsyncMatrixTableAll(table, all, ROWS * COLS);
        if (round % 2 == 0)
            MV_AddMatrixTableByRows(table, some, 4 * COLS, ids, 4);
        else
            MV_AddAsyncMatrixTableByRows(table, some, 4 * COLS, ids, 4);
        MV_Barrier();
        MV_GetMatrixTableAll(table, values, ROWS * COLS);
        for (int i = 0; i < ROWS * COLS; i++) {
            int row = i / COLS, twice = row == 0 || row == 1 || row == 5 || row == 10;
            CHECK(values[i] == (float)(i * round * workers * (1 + twice)));
        }
        MV_Barrier();
        MV_GetMatrixTableByRows(table, values, 4 * COLS, ids, 4);
        for (int i = 0; i < 4 * COLS; i++) CHECK(values[i] == some[i] * (float)(2 * round * workers));
        MV_Barrier();
    }
    /* A row that is requested twice is returned twice. */
    int same[2] = {7, 7};
    MV_GetMatrixTableByRows(table, values, 2 * COLS, same, 2);
    for (int i = 0; i < COLS; i++) CHECK(values[i] == values[COLS + i] && values[i] == all[7 * COLS + i] * (float)(20 * workers));
    MV_Barrier();
    MV_AddMatrixTableAll(table, all, ROWS * COLS);
}

int main(int argc, char **argv) {
    MV_Init(&argc, argv);
    int workers = MV_NumWorkers();
    CHECK(MV_WorkerId() >= 0 && MV_WorkerId() < workers && MV_ServerId() == MV_WorkerId());
    array(workers);
    matrix(workers);
    int id = MV_WorkerId();
    MV_ShutDown();
    printf("worker %d of %d: all well\n", id, workers);
    return 0;
}
