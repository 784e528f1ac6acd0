/*
 * Unisono: spread the training of a model over many processes.
 *
 * Every function returns a status: UNISONO_OK, or a number that says what went wrong; unisono_last_error() then
 * has the text. Results come through pointers, which are written to only when the status is UNISONO_OK.
 * A NULL pointer where something is needed is an error, not a crash. Functions may be called from any thread.
 *
 * One process is one rank. It is started by `unisono run`, mpirun, torchrun or Slurm; started plainly it is alone.
 */

#ifndef UNISONO_H
#define UNISONO_H

/* Made from bindings/c/src by cbindgen: change it there, then run `make header`. */

#include <stddef.h>
#include <stdint.h>

/**
 * What a function returns: fine, or what sort of error it was. Numbers are never used again for something else.
 */
typedef enum {
    /**
     * Fine.
     */
    UNISONO_OK = 0,
    /**
     * The call cannot be right; nothing was changed.
     */
    UNISONO_USAGE = 1,
    /**
     * A deadline passed.
     */
    UNISONO_TIMEOUT = 2,
    /**
     * Another rank died or gave up.
     */
    UNISONO_PEER_LOST = 3,
    /**
     * The operating system refused something.
     */
    UNISONO_IO = 4,
    /**
     * This machine or this build cannot do it.
     */
    UNISONO_UNSUPPORTED = 5,
    /**
     * A bug in this library.
     */
    UNISONO_INTERNAL = 6,
    /**
     * The wait was interrupted.
     */
    UNISONO_INTERRUPTED = 7,
} unisono_status;

/**
 * The type of an element.
 */
typedef enum {
    /**
     * float
     */
    UNISONO_F32 = 1,
    /**
     * double
     */
    UNISONO_F64 = 2,
    /**
     * IEEE half precision, as uint16_t
     */
    UNISONO_F16 = 3,
    /**
     * The upper half of a float, as uint16_t
     */
    UNISONO_BF16 = 4,
    /**
     * int8_t
     */
    UNISONO_I8 = 5,
    /**
     * uint8_t
     */
    UNISONO_U8 = 6,
    /**
     * int32_t
     */
    UNISONO_I32 = 7,
    /**
     * int64_t
     */
    UNISONO_I64 = 8,
} unisono_dtype;

/**
 * How the values of several ranks become one.
 */
typedef enum {
    /**
     * The sum; integers wrap around.
     */
    UNISONO_SUM = 1,
    /**
     * The mean; floating types only.
     */
    UNISONO_AVG = 2,
    /**
     * The product; integers wrap around.
     */
    UNISONO_PROD = 3,
    /**
     * The smallest; NaN if any value is NaN.
     */
    UNISONO_MIN = 4,
    /**
     * The largest; NaN if any value is NaN.
     */
    UNISONO_MAX = 5,
} unisono_op;

/**
 * A group: ranks that make the same calls in the same order.
 */
typedef uint64_t unisono_group;

/**
 * Options of a table or of an add.
 */
typedef uint64_t unisono_options;

/**
 * An array, a matrix, a sparse matrix or a key-value table that the workers share.
 */
typedef uint64_t unisono_table;

/**
 * A call that runs in the background.
 */
typedef uint64_t unisono_pending;

/**
 * The keys of a call; a key may stand there more than once. For a table whose keys are "int": numbers and count. For one
 * whose keys are "bytes": bytes, lengths and count. What the table does not need may be NULL.
 */
typedef struct {
    /**
     * The keys, if they are numbers.
     */
    const int64_t *numbers;
    /**
     * Where each key begins, if they are bytes.
     */
    const void *const *bytes;
    /**
     * How many bytes each key has.
     */
    const size_t *lengths;
    /**
     * How many keys there are.
     */
    size_t count;
} unisono_keys;

/**
 * All keys and values of a key-value table, sorted by key.
 */
typedef uint64_t unisono_items;

/**
 * The group of everybody; it needs no freeing.
 */
#define UNISONO_WORLD 0

/**
 * What a rank gets that is in no group.
 */
#define UNISONO_NO_GROUP UINT64_MAX

/**
 * No options: everything has its usual value.
 */
#define UNISONO_DEFAULTS 0

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The text of this thread's last error: what was expected, what was received, and what to do. It is empty when no call
 * of this thread failed, and never NULL. It stays until the thread's next error.
 */
const char *unisono_last_error(void);

/**
 * Joins the world that the launcher of this process has started; alone without a launcher. Waits until everybody is
 * there. A second call only sets the timeout, unless that is 0.
 *
 * timeout: seconds that any call waits before it gives up; 0 for the default: UNISONO_TIMEOUT, or 300.
 */
int32_t unisono_init(double timeout);

/**
 * Leaves the world, which frees all its handles; without a world it does nothing. What this rank added to tables is
 * applied first, and the status tells if that failed. Call it once, when all work is done: a rank of a job cannot join
 * again.
 */
int32_t unisono_shutdown(void);

/**
 * This process's rank.
 */
int32_t unisono_rank(int32_t *rank);

/**
 * How many ranks there are.
 */
int32_t unisono_size(int32_t *size);

/**
 * This process's rank among those of its host.
 */
int32_t unisono_local_rank(int32_t *rank);

/**
 * How many ranks are on this host.
 */
int32_t unisono_local_size(int32_t *size);

/**
 * How often `unisono run --restart` has started this rank again: 0 in its first process.
 */
int32_t unisono_restarts(int32_t *restarts);

/**
 * Declares that this process goes on where the process before it had stopped: its next collective on the world is the one
 * that the others make next. A rank that was started again calls it once its state is restored, before its first
 * collective, which is an error on all ranks otherwise; in a rank's first process it does nothing.
 */
int32_t unisono_resume(void);

/**
 * How bytes travel: "alone", "shm", "mpi" or "shm+mpi". The text stays until the shutdown.
 */
int32_t unisono_transport(const char **name);

/**
 * Who started the ranks, such as "unisono run", "Open MPI" or "none". The text stays until the shutdown.
 */
int32_t unisono_launcher(const char **name);

/**
 * The name of a rank's host. The text stays until the shutdown.
 */
int32_t unisono_host(int32_t rank, const char **name);

/**
 * The version of this library, such as "0.1.0".
 */
int32_t unisono_version(const char **version);

/**
 * Waits until every member has called this. What they added to tables before is applied afterwards.
 */
int32_t unisono_barrier(unisono_group group);

/**
 * Copies the root's values to every member.
 */
int32_t unisono_broadcast(unisono_group group, void *values, size_t count, int32_t dtype, int32_t root);

/**
 * Combines the members' values; everybody gets the result, in place.
 */
int32_t unisono_all_reduce(unisono_group group, void *values, size_t count, int32_t dtype, int32_t op);

/**
 * Combines the members' values in the root's buffer; the other members' buffers do not change.
 */
int32_t unisono_reduce(unisono_group group,
                       void *values,
                       size_t count,
                       int32_t dtype,
                       int32_t op,
                       int32_t root);

/**
 * Collects `count` values of every member at the root, in rank order; only the root's output is used, the others may
 * pass NULL.
 */
int32_t unisono_gather(unisono_group group,
                       const void *input,
                       void *output,
                       size_t count,
                       int32_t dtype,
                       int32_t root);

/**
 * Hands out the root's values, `count` to every member in rank order; only the root's input is used, the others may
 * pass NULL.
 */
int32_t unisono_scatter(unisono_group group,
                        const void *input,
                        void *output,
                        size_t count,
                        int32_t dtype,
                        int32_t root);

/**
 * Collects `count` values of every member, in rank order; everybody gets them all.
 */
int32_t unisono_all_gather(unisono_group group, const void *input, void *output, size_t count, int32_t dtype);

/**
 * Combines the members' inputs, as many values as members times `count`; every member gets `count` of the result, in
 * rank order.
 */
int32_t unisono_reduce_scatter(unisono_group group,
                               const void *input,
                               void *output,
                               size_t count,
                               int32_t dtype,
                               int32_t op);

/**
 * Sends `count` values to every member and receives as many from each: part r of the input goes to rank r, part r of
 * the output comes from it.
 */
int32_t unisono_all_to_all(unisono_group group,
                           const void *input,
                           void *output,
                           size_t count,
                           int32_t dtype);

/**
 * Sends values to a member. Returns when they may be overwritten: short messages at once, long ones when the other side
 * receives them. Messages with the same tag between two members arrive in order.
 */
int32_t unisono_send(unisono_group group,
                     const void *values,
                     size_t count,
                     int32_t dtype,
                     int32_t to,
                     uint32_t tag);

/**
 * Receives values from a member; type and count must be the sender's.
 */
int32_t unisono_recv(unisono_group group,
                     void *values,
                     size_t count,
                     int32_t dtype,
                     int32_t from,
                     uint32_t tag);

/**
 * As unisono_gather, with counts[r] values from member r.
 */
int32_t unisono_gather_varied(unisono_group group,
                              const void *input,
                              void *output,
                              const size_t *counts,
                              int32_t dtype,
                              int32_t root);

/**
 * As unisono_scatter, with counts[r] values for member r.
 */
int32_t unisono_scatter_varied(unisono_group group,
                               const void *input,
                               void *output,
                               const size_t *counts,
                               int32_t dtype,
                               int32_t root);

/**
 * As unisono_all_gather, with counts[r] values from member r.
 */
int32_t unisono_all_gather_varied(unisono_group group,
                                  const void *input,
                                  void *output,
                                  const size_t *counts,
                                  int32_t dtype);

/**
 * As unisono_reduce_scatter, with counts[r] values of the result for member r.
 */
int32_t unisono_reduce_scatter_varied(unisono_group group,
                                      const void *input,
                                      void *output,
                                      const size_t *counts,
                                      int32_t dtype,
                                      int32_t op);

/**
 * As unisono_all_to_all, with send_counts[r] values to member r and receive_counts[r] from it.
 */
int32_t unisono_all_to_all_varied(unisono_group group,
                                  const void *input,
                                  const size_t *send_counts,
                                  void *output,
                                  const size_t *receive_counts,
                                  int32_t dtype);

/**
 * Makes the group of these members: ranks of `parent`, in the order of their new ranks. Every member calls this with
 * the same list.
 */
int32_t unisono_group_new(unisono_group parent,
                          const int32_t *members,
                          size_t count,
                          unisono_group *group);

/**
 * Makes one group for each color, its members ordered by key and then by rank. Every member of `parent` calls this.
 * A rank with a negative color is in no group: its handle becomes UNISONO_NO_GROUP.
 */
int32_t unisono_group_split(unisono_group parent,
                            int64_t color,
                            int64_t key,
                            unisono_group *group);

/**
 * Makes a handle of the same group whose calls wait so many seconds before they give up.
 */
int32_t unisono_group_with_timeout(unisono_group group, double seconds, unisono_group *changed);

/**
 * Makes a handle of the same group whose reductions give the same bits on every transport.
 */
int32_t unisono_group_deterministic(unisono_group group, unisono_group *changed);

/**
 * This process's rank in the group.
 */
int32_t unisono_group_rank(unisono_group group, int32_t *rank);

/**
 * How many ranks the group has.
 */
int32_t unisono_group_size(unisono_group group, int32_t *size);

/**
 * Frees a handle that one of the functions above made.
 */
int32_t unisono_group_free(unisono_group group);

/**
 * Makes memory that this host's ranks share: collectives on it need no copy. It is aligned to 64 bytes and has no
 * particular values. It stays until it is freed, also after the shutdown.
 */
int32_t unisono_memory_new(size_t bytes,
                           void **memory);

/**
 * Frees such memory. NULL is fine.
 */
int32_t unisono_memory_free(void *memory);

/**
 * Gives this rank its role for tables: "worker", "server", "both" or "none"; NULL is "both". Every rank calls it, once,
 * before it makes tables. It may be left out: then the first table makes everybody both.
 */
int32_t unisono_tables_join(const char *role);

/**
 * How many workers there are.
 */
int32_t unisono_workers(int32_t *count);

/**
 * How many servers there are.
 */
int32_t unisono_servers(int32_t *count);

/**
 * This rank's number among the workers, in the order of ranks; -1 if it is none.
 */
int32_t unisono_worker_id(int32_t *id);

/**
 * This rank's number among the servers, in the order of ranks; -1 if it is none.
 */
int32_t unisono_server_id(int32_t *id);

/**
 * The rank of a worker; -1 if there is no such worker.
 */
int32_t unisono_worker_rank(int32_t id, int32_t *rank);

/**
 * The rank of a server; -1 if there is no such server.
 */
int32_t unisono_server_rank(int32_t id, int32_t *rank);

/**
 * Waits until all adds that this rank began are applied, and tells of the first that failed. unisono_barrier does it too.
 */
int32_t unisono_flush(void);

/**
 * Says that this worker makes no more calls on its tables: with bsp and ssp the others go on without it. The shutdown
 * does it too; unisono_table_finish does it for one table.
 */
int32_t unisono_finish(void);

/**
 * Writes all tables, with what their updaters remember, to a folder, or where the library was built with the feature cloud to
 * an address such as s3://bucket/name. Every rank calls it. What was there before is replaced when the new is complete.
 */
int32_t unisono_save(const char *target);

/**
 * Reads all tables from what unisono_save wrote, on any number of ranks. Every rank calls it, when all tables are made.
 * If the file is damaged or of other tables, nothing changes.
 */
int32_t unisono_load(const char *target);

/**
 * Makes options in which nothing is set. The same options may serve many tables and adds; an add takes its updater's
 * numbers from them and leaves the rest alone. Where an add sets nothing, the table's own options hold.
 */
int32_t unisono_options_new(unisono_options *options);

/**
 * Sets an option that is a text:
 *
 * - name: by which a checkpoint and a restarted rank know the table;
 * - updater: add (the usual one), sgd, momentum, nesterov, adagrad, rmsprop, adam, lion, ftrl, dcasgd,
 *   dcasgda, multiverso_adagrad or multiverso_momentum;
 * - consistency: async (the usual one), bsp, bsp:backup=1, bsp:mean, ssp:3 or average;
 * - compression, between hosts: none (the usual one), float16, bfloat16, int8 or topk:0.01;
 * - init: zero (the usual one), uniform or normal.
 */
int32_t unisono_options_set_text(unisono_options options, const char *name, const char *value);

/**
 * Sets an option that is a number:
 *
 * - init: what every element is at first;
 * - low, high (uniform), mean, deviation (normal), seed (both): for random first values;
 * - reject_nan: 1 to refuse adds that hold a NaN;
 * - pipelined: 1 for a sparse matrix with a second view of what changed;
 * - the updater's own: learning_rate, momentum, rho, lambda, epsilon, beta1, beta2, alpha, beta, lambda1, lambda2.
 */
int32_t unisono_options_set_number(unisono_options options,
                                   const char *name,
                                   double value);

/**
 * Frees options.
 */
int32_t unisono_options_free(unisono_options options);

/**
 * Makes an array of `size` elements. Every rank calls it, and in the same order as other tables.
 *
 * initial: as many values, of which those of worker 0 win; or NULL, then the options say what it holds at first.
 */
int32_t unisono_array_new(size_t size,
                          int32_t dtype,
                          const void *initial,
                          unisono_options options,
                          unisono_table *table);

/**
 * Makes a matrix, distributed by rows. Every rank calls it. See unisono_array_new.
 */
int32_t unisono_matrix_new(size_t rows,
                           size_t cols,
                           int32_t dtype,
                           const void *initial,
                           unisono_options options,
                           unisono_table *table);

/**
 * Makes a matrix that remembers what each worker has seen, for unisono_table_get_changed. Every rank calls it. See
 * unisono_array_new.
 */
int32_t unisono_sparse_matrix_new(size_t rows,
                                  size_t cols,
                                  int32_t dtype,
                                  const void *initial,
                                  unisono_options options,
                                  unisono_table *table);

/**
 * Makes a handle of the same table whose calls wait so many seconds before they give up.
 */
int32_t unisono_table_with_timeout(unisono_table table, double seconds, unisono_table *changed);

/**
 * Frees the handle of a table. The table's memory is free when all ranks have done so.
 */
int32_t unisono_table_free(unisono_table table);

/**
 * How many rows the table has; for an array, how many elements; for a key-value table, how many keys are there by now.
 */
int32_t unisono_table_rows(unisono_table table,
                           size_t *rows);

/**
 * How many columns the table has; an array has one; for a key-value table, how many values each key has.
 */
int32_t unisono_table_cols(unisono_table table, size_t *cols);

/**
 * The type of its elements.
 */
int32_t unisono_table_dtype(unisono_table table, int32_t *dtype);

/**
 * Its name. The text stays until the handle is freed.
 */
int32_t unisono_table_name(unisono_table table, const char **name);

/**
 * What it is: "array", "matrix", "sparse-matrix" or "key-value". The text stays until the handle is freed.
 */
int32_t unisono_table_kind(unisono_table table, const char **kind);

/**
 * What an add does. The text stays until the handle is freed.
 */
int32_t unisono_table_updater(unisono_table table, const char **updater);

/**
 * How far workers may drift apart. The text stays until the handle is freed.
 */
int32_t unisono_table_consistency(unisono_table table, const char **consistency);

/**
 * How many steps this worker has made: its own ticks, those of the process before it if it was started again, and those that the
 * others made without it. A loop that goes on at this step can be started again.
 */
int32_t unisono_table_clock(unisono_table table,
                            uint64_t *steps);

/**
 * How old the values were that this rank's gets returned: histogram[i] counts the gets at which the slowest other worker
 * was i steps behind. Steps are ticks with ssp, adds otherwise.
 *
 * capacity: how many numbers fit into histogram, which may be NULL if 0; count: how many there are.
 */
int32_t unisono_table_staleness(unisono_table table,
                                uint64_t *histogram,
                                size_t capacity,
                                size_t *count);

/**
 * Copies rows into `values`, which has room for `count` elements: as many as the rows have.
 *
 * rows: row ids of a matrix, which count from 0, in any order; NULL for the whole table, and always for an array.
 */
int32_t unisono_table_get(unisono_table table,
                          const int64_t *rows,
                          size_t row_count,
                          void *values,
                          size_t count);

/**
 * Adds `delta` to rows, by the table's updater; returns when it is applied. Rows that stand there twice are added to twice.
 */
int32_t unisono_table_add(unisono_table table,
                          const int64_t *rows,
                          size_t row_count,
                          const void *delta,
                          size_t count,
                          unisono_options options);

/**
 * As unisono_table_add, but what must wait does so in the background. `delta` may be used again at once; unisono_flush,
 * unisono_barrier or the next call on this table tells what went wrong.
 */
int32_t unisono_table_add_soon(unisono_table table,
                               const int64_t *rows,
                               size_t row_count,
                               const void *delta,
                               size_t count,
                               unisono_options options);

/**
 * Copies rows into buffers of their own: values[i] has room for one row.
 */
int32_t unisono_table_get_separate(unisono_table table,
                                   const int64_t *rows,
                                   size_t row_count,
                                   void *const *values);

/**
 * Adds buffers of their own to rows: delta[i] holds one row.
 */
int32_t unisono_table_add_separate(unisono_table table,
                                   const int64_t *rows,
                                   size_t row_count,
                                   const void *const *delta,
                                   unisono_options options);

/**
 * For a sparse matrix: copies those of the rows that changed since this worker's last call with the same `buffer` (0, or 1
 * if the table is pipelined) to their places in `values`; the rest of `values` stays as it is.
 *
 * changed: room for the ids of these rows, as many as were asked for, or NULL; changed_count: how many they are.
 */
int32_t unisono_table_get_changed(unisono_table table,
                                  int32_t buffer,
                                  const int64_t *rows,
                                  size_t row_count,
                                  void *values,
                                  size_t count,
                                  int64_t *changed,
                                  size_t *changed_count);

/**
 * A get in the background: `values` belongs to it until unisono_pending_wait has said that it is over.
 */
int32_t unisono_table_start_get(unisono_table table,
                                const int64_t *rows,
                                size_t row_count,
                                void *values,
                                size_t count,
                                unisono_pending *pending);

/**
 * An add in the background: `delta` belongs to it until unisono_pending_wait has said that it is over.
 */
int32_t unisono_table_start_add(unisono_table table,
                                const int64_t *rows,
                                size_t row_count,
                                const void *delta,
                                size_t count,
                                unisono_options options,
                                unisono_pending *pending);

/**
 * Says that this worker begins its next step: the bound of ssp counts these. With average, all workers call it and their
 * copies become the average of them all.
 */
int32_t unisono_table_tick(unisono_table table);

/**
 * Waits until all adds that this rank began on this table are applied, and tells of the first that failed. unisono_flush does
 * it for all tables.
 */
int32_t unisono_table_flush(unisono_table table);

/**
 * Says that this worker makes no more calls on this table: with bsp and ssp the others go on without it. What it added is
 * applied first. unisono_finish does it for all tables.
 */
int32_t unisono_table_finish(unisono_table table);

/**
 * Makes a key-value table: every key has `dim` values. Every rank calls it, and in the same order as other tables.
 *
 * keys: "int" for whole numbers of 64 bits, "bytes" for any bytes.
 */
int32_t unisono_key_value_new(const char *keys,
                              size_t dim,
                              int32_t dtype,
                              unisono_options options,
                              unisono_table *table);

/**
 * Copies the values of these keys into `values`, a row for each; it has room for `count` elements. An absent key has its
 * initial values, and stays absent.
 */
int32_t unisono_key_value_get(unisono_table table,
                              const unisono_keys *keys,
                              void *values,
                              size_t count);

/**
 * Adds a row of `delta` to each of these keys, by the table's updater; returns when it is applied. A key that stands there
 * twice is added to twice.
 */
int32_t unisono_key_value_add(unisono_table table,
                              const unisono_keys *keys,
                              const void *delta,
                              size_t count,
                              unisono_options options);

/**
 * As unisono_key_value_add, but what must wait does so in the background. Keys and `delta` may be used again at once;
 * unisono_flush, unisono_barrier or the next call on this table tells what went wrong.
 */
int32_t unisono_key_value_add_soon(unisono_table table,
                                   const unisono_keys *keys,
                                   const void *delta,
                                   size_t count,
                                   unisono_options options);

/**
 * A get in the background: `values` belongs to it until unisono_pending_wait has said that it is over.
 */
int32_t unisono_key_value_start_get(unisono_table table,
                                    const unisono_keys *keys,
                                    void *values,
                                    size_t count,
                                    unisono_pending *pending);

/**
 * An add in the background: `delta` belongs to it until unisono_pending_wait has said that it is over.
 */
int32_t unisono_key_value_start_add(unisono_table table,
                                    const unisono_keys *keys,
                                    const void *delta,
                                    size_t count,
                                    unisono_options options,
                                    unisono_pending *pending);

/**
 * Whether anybody has added to each of these keys: present[i] becomes 1 or 0.
 */
int32_t unisono_key_value_contains(unisono_table table, const unisono_keys *keys, uint8_t *present);

/**
 * Copies all keys and values of a key-value table. What others add meanwhile may be there or not.
 */
int32_t unisono_key_value_items(unisono_table table, unisono_items *items);

/**
 * How many keys there are.
 */
int32_t unisono_items_count(unisono_items items, size_t *count);

/**
 * The keys, if they are numbers. They stay until the items are freed.
 */
int32_t unisono_items_numbers(unisono_items items, const int64_t **numbers);

/**
 * One of the keys, if they are bytes. They stay until the items are freed.
 */
int32_t unisono_items_bytes(unisono_items items, size_t index, const void **bytes, size_t *length);

/**
 * The values: a row for each key, in the order of the keys. They stay until the items are freed.
 */
int32_t unisono_items_values(unisono_items items, const void **values);

/**
 * Frees items.
 */
int32_t unisono_items_free(unisono_items items);

/**
 * Waits for a call in the background, at most so many seconds (0: until the call's own deadline), and returns its status.
 * If it still runs then, the status is UNISONO_TIMEOUT and the handle stays; else the handle is freed.
 */
int32_t unisono_pending_wait(unisono_pending pending,
                             double timeout);

/**
 * Whether a wait would return at once: 1 if so, 0 if not.
 */
int32_t unisono_pending_done(unisono_pending pending, int32_t *done);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNISONO_H */
