/* One rank is the server of the table, the others are workers; the last one only takes part in barriers. */
#include "check.h"

int main(void) {
    int32_t rank, size, number;
    float delta[7] = {1, 2, 3, 4, 5, 6, 7}, values[7];
    unisono_table table;
    OK(unisono_init(120.0));
    OK(unisono_rank(&rank));
    OK(unisono_size(&size));
    CHECK(size == 4);
    OK(unisono_tables_join(rank == 0 ? "server" : rank == 3 ? "none" : "worker"));
    OK(unisono_workers(&number));
    CHECK(number == 2);
    OK(unisono_servers(&number));
    CHECK(number == 1);
    OK(unisono_worker_id(&number));
    CHECK(number == (rank == 0 || rank == 3 ? -1 : rank - 1));
    OK(unisono_server_id(&number));
    CHECK(number == (rank == 0 ? 0 : -1));
    OK(unisono_array_new(7, UNISONO_F32, NULL, UNISONO_DEFAULTS, &table));
    if (rank == 1 || rank == 2) {
        OK(unisono_table_add(table, NULL, 0, delta, 7, UNISONO_DEFAULTS));
    } else {
        FAILS(unisono_table_add(table, NULL, 0, delta, 7, UNISONO_DEFAULTS), UNISONO_USAGE, "a call by a worker");
    }
    OK(unisono_barrier(UNISONO_WORLD));
    if (rank == 1 || rank == 2) {
        OK(unisono_table_get(table, NULL, 0, values, 7));
        for (int i = 0; i < 7; i++) CHECK(values[i] == 2 * delta[i]);
    }
    OK(unisono_shutdown());
    printf("rank %d of %d: all well\n", (int)rank, (int)size);
    return 0;
}
