/* The effect of flags on a table: the updater, the roles, and model averaging without tables. */
#include <multiverso/c_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono.h>

#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition);                     \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)

int main(int argc, char **argv) {
    CHECK(argc == 4);
    const char *what = argv[3];
    int32_t rank, size;
    float delta[4] = {1, 2, 3, 4}, values[4];
    TableHandler table;
    if (strcmp(what, "role") == 0 && strcmp(getenv("UNISONO_RANK"), "0") == 0) argv[1] = (char *)"-ps_role=server";
    MV_Init(&argc, argv);
    CHECK(argc == 2 && strcmp(argv[1], what) == 0);
    /* Both interfaces see the same world. */
    CHECK(unisono_rank(&rank) == UNISONO_OK && unisono_size(&size) == UNISONO_OK);
    if (strcmp(what, "average") == 0) {
        CHECK(MV_NumWorkers() == size && MV_WorkerId() == rank && MV_ServerId() == -1);
        CHECK(unisono_all_reduce(UNISONO_WORLD, values, 0, UNISONO_F32, UNISONO_AVG) == UNISONO_OK);
    } else if (strcmp(what, "role") == 0) {
        CHECK(MV_NumWorkers() == size - 1 && MV_WorkerId() == rank - 1 && MV_ServerId() == (rank == 0 ? 0 : -1));
        MV_NewArrayTable(4, &table);
        if (rank > 0) MV_AddAsyncArrayTable(table, delta, 4);
        MV_Barrier();
        if (rank > 0) {
            MV_GetArrayTable(table, values, 4);
            for (int i = 0; i < 4; i++) CHECK(values[i] == delta[i] * (float)(size - 1));
        }
    } else {
        MV_NewArrayTable(4, &table);
        MV_AddArrayTable(table, delta, 4);
        MV_Barrier();
        MV_GetArrayTable(table, values, 4);
        for (int i = 0; i < 4; i++) CHECK(values[i] == -delta[i] * (float)size);
    }
    MV_Barrier();
    MV_ShutDown();
    printf("%s: all well\n", what);
    return 0;
}
