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
 * Joins the world. Flags of the form -key=value in argv are obeyed and taken out: sync (bsp instead of async),
 * updater_type, ps_role (worker, server, none, default), backup_worker_ratio (percent), ma (no tables). Others stay.
 */
void MV_Init(int *argc,
             char **argv);

/**
 * Waits for everybody and leaves the world.
 */
void MV_ShutDown(void);

/**
 * Waits for everybody; what any of them added before is applied afterwards.
 */
void MV_Barrier(void);

/**
 * How many workers there are.
 */
int MV_NumWorkers(void);

/**
 * This process's number among the workers, from 0; -1 if it is none.
 */
int MV_WorkerId(void);

/**
 * This process's number among the servers, from 0; -1 if it is none.
 */
int MV_ServerId(void);

/**
 * Makes an array of zeros. Every process calls it.
 */
void MV_NewArrayTable(int size, TableHandler *out);

/**
 * Copies the whole array into data.
 */
void MV_GetArrayTable(TableHandler handler, float *data, int size);

/**
 * Adds data to the whole array; returns when that is done.
 */
void MV_AddArrayTable(TableHandler handler, float *data, int size);

/**
 * Adds data to the whole array, in the background; data may be used again at once.
 */
void MV_AddAsyncArrayTable(TableHandler handler, float *data, int size);

/**
 * Makes a matrix of zeros. Every process calls it.
 */
void MV_NewMatrixTable(int num_row, int num_col, TableHandler *out);

/**
 * Copies the whole matrix into data.
 */
void MV_GetMatrixTableAll(TableHandler handler, float *data, int size);

/**
 * Adds data to the whole matrix; returns when that is done.
 */
void MV_AddMatrixTableAll(TableHandler handler, float *data, int size);

/**
 * Adds data to the whole matrix, in the background; data may be used again at once.
 */
void MV_AddAsyncMatrixTableAll(TableHandler handler, float *data, int size);

/**
 * Copies these rows into data, one after the other.
 */
void MV_GetMatrixTableByRows(TableHandler handler, float *data, int size, int *row_ids, int row_ids_n);

/**
 * Adds data to these rows; returns when that is done.
 */
void MV_AddMatrixTableByRows(TableHandler handler, float *data, int size, int *row_ids, int row_ids_n);

/**
 * Adds data to these rows, in the background; data and row_ids may be used again at once.
 */
void MV_AddAsyncMatrixTableByRows(TableHandler handler, float *data, int size, int *row_ids, int row_ids_n);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MULTIVERSO_C_API_H */
