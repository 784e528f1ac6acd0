/*
 * The C interface of Multiverso, as programs written for it know it; libmultiverso.so is libunisono.so.
 *
 * These functions return no status: an error is printed with the rank, and the program is aborted. The functions of
 * unisono.h work on the same world.
 */

#ifndef MULTIVERSO_C_API_H
#define MULTIVERSO_C_API_H

/* Made from bindings/c/src by cbindgen: change it there, then run `make header`. */

/**
 * A table of floats.
 */
typedef void *TableHandler;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Joins the world. Flags of the form -key=value in argv are applied and removed: sync (bsp instead of async),
 * updater_type, ps_role (worker, server, none, default), backup_worker_ratio (percent), ma (no tables). Others are kept.
 */
void MV_Init(int *argc,
             char **argv);

/**
 * Waits for all processes and leaves the world.
 */
void MV_ShutDown(void);

/**
 * Waits for all processes; afterwards, all of their earlier adds are applied.
 */
void MV_Barrier(void);

/**
 * The number of workers.
 */
int MV_NumWorkers(void);

/**
 * This process's worker id, from 0; -1 if it is not a worker.
 */
int MV_WorkerId(void);

/**
 * This process's server id, from 0; -1 if it is not a server.
 */
int MV_ServerId(void);

/**
 * Creates an array of zeros. Every process calls it.
 */
void MV_NewArrayTable(int size, TableHandler *out);

/**
 * Copies the full array into data.
 */
void MV_GetArrayTable(TableHandler handler, float *data, int size);

/**
 * Adds data to the full array; returns when the add is applied.
 */
void MV_AddArrayTable(TableHandler handler, float *data, int size);

/**
 * Adds data to the full array in the background; data may be reused at once.
 */
void MV_AddAsyncArrayTable(TableHandler handler, float *data, int size);

/**
 * Creates a matrix of zeros. Every process calls it.
 */
void MV_NewMatrixTable(int num_row, int num_col, TableHandler *out);

/**
 * Copies the full matrix into data.
 */
void MV_GetMatrixTableAll(TableHandler handler, float *data, int size);

/**
 * Adds data to the full matrix; returns when the add is applied.
 */
void MV_AddMatrixTableAll(TableHandler handler, float *data, int size);

/**
 * Adds data to the full matrix in the background; data may be reused at once.
 */
void MV_AddAsyncMatrixTableAll(TableHandler handler, float *data, int size);

/**
 * Copies these rows into data, in order.
 */
void MV_GetMatrixTableByRows(TableHandler handler, float *data, int size, int *row_ids, int row_ids_n);

/**
 * Adds data to these rows; returns when the add is applied.
 */
void MV_AddMatrixTableByRows(TableHandler handler, float *data, int size, int *row_ids, int row_ids_n);

/**
 * Adds data to these rows in the background; data and row_ids may be reused at once.
 */
void MV_AddAsyncMatrixTableByRows(TableHandler handler, float *data, int size, int *row_ids, int row_ids_n);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MULTIVERSO_C_API_H */
