/* A program for Multiverso that makes the mistake named by its last argument. */
#include <multiverso/c_api.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    float values[10] = {0};
    int ids[1] = {4};
    TableHandler table;
    const char *mistake = argv[argc - 1];
    if (strcmp(mistake, "early") == 0) MV_Barrier();
    MV_Init(&argc, argv);
    MV_NewMatrixTable(3, 2, &table);
    if (strcmp(mistake, "size") == 0) MV_GetMatrixTableAll(table, values, 7);
    if (strcmp(mistake, "row") == 0) MV_AddMatrixTableByRows(table, values, 2, ids, 1);
    if (strcmp(mistake, "handler") == 0) MV_GetMatrixTableAll((TableHandler)values, values, 6);
    if (strcmp(mistake, "null") == 0) MV_GetMatrixTableAll(table, NULL, 6);
    if (strcmp(mistake, "negative") == 0) MV_NewArrayTable(-1, &table);
    MV_ShutDown();
    printf("no mistake was noticed\n");
    return 0;
}
