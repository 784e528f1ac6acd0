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
 * The result of a function: success, or the kind of the error. Numbers are never reused.
 */
typedef enum {
    /**
     * Success.
     */
    UNISONO_OK = 0,
    /**
     * Invalid arguments or an invalid sequence of calls; nothing was changed.
     */
    UNISONO_USAGE = 1,
    /**
     * A deadline passed.
     */
    UNISONO_TIMEOUT = 2,
    /**
     * Another rank died or aborted.
     */
    UNISONO_PEER_LOST = 3,
    /**
     * The operating system reported an error.
     */
    UNISONO_IO = 4,
    /**
     * Not supported on this machine or in this build.
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
    /**
     * bool
     */
    UNISONO_BOOL = 9,
    /**
     * int16_t
     */
    UNISONO_I16 = 10,
    /**
     * uint16_t
     */
    UNISONO_U16 = 11,
    /**
     * uint32_t
     */
    UNISONO_U32 = 12,
    /**
     * uint64_t
     */
    UNISONO_U64 = 13,
    /**
     * float complex: the real and the imaginary part
     */
    UNISONO_C64 = 14,
    /**
     * double complex
     */
    UNISONO_C128 = 15,
    /**
     * Four bits of exponent, three of mantissa, no infinities; can be moved but not reduced, like the types below
     */
    UNISONO_F8_E4M3FN = 16,
    /**
     * The same without a negative zero
     */
    UNISONO_F8_E4M3FNUZ = 17,
    /**
     * Five bits of exponent, two of mantissa
     */
    UNISONO_F8_E5M2 = 18,
    /**
     * The same without infinities and a negative zero
     */
    UNISONO_F8_E5M2FNUZ = 19,
    /**
     * A power of two: eight bits of exponent
     */
    UNISONO_F8_E8M0FNU = 20,
} unisono_dtype;

/**
 * A reduction: how the values of several ranks are combined.
 */
typedef enum {
    /**
     * The sum; integers wrap around; of bool, whether any is true.
     */
    UNISONO_SUM = 1,
    /**
     * The mean; floating-point and complex types only.
     */
    UNISONO_AVG = 2,
    /**
     * The product; integers wrap around; of bool, whether all are true.
     */
    UNISONO_PROD = 3,
    /**
     * The minimum; NaN if any value is NaN; not for complex types.
     */
    UNISONO_MIN = 4,
    /**
     * The maximum; NaN if any value is NaN; not for complex types.
     */
    UNISONO_MAX = 5,
    /**
     * Bitwise and; integers and bool only, like the operations below.
     */
    UNISONO_BAND = 6,
    /**
     * Bitwise or.
     */
    UNISONO_BOR = 7,
    /**
     * Bitwise exclusive or.
     */
    UNISONO_BXOR = 8,
    /**
     * Logical and: 1 if no value is 0.
     */
    UNISONO_LAND = 9,
    /**
     * Logical or: 1 if any value is not 0.
     */
    UNISONO_LOR = 10,
} unisono_op;

/**
 * A group: ranks that make the same calls in the same order.
 */
typedef uint64_t unisono_group;

/**
 * A call that runs in the background.
 */
typedef uint64_t unisono_pending;

/**
 * Options of a table or of an add.
 */
typedef uint64_t unisono_options;

/**
 * An array, a matrix, a sparse matrix or a key-value table that the workers share.
 */
typedef uint64_t unisono_table;

/**
 * The keys of a call; a key may occur more than once. For a table whose keys are "int": numbers and count. For one
 * whose keys are "bytes": bytes, lengths and count. Fields that the table does not need may be NULL.
 */
typedef struct {
    /**
     * The keys, if they are numbers.
     */
    const int64_t *numbers;
    /**
     * The address of each key, if they are bytes.
     */
    const void *const *bytes;
    /**
     * The length of each key in bytes.
     */
    const size_t *lengths;
    /**
     * The number of keys.
     */
    size_t count;
} unisono_keys;

/**
 * All keys and values of a key-value table, sorted by key.
 */
typedef uint64_t unisono_items;

/**
 * The group of all ranks; it is not freed.
 */
#define UNISONO_WORLD 0

/**
 * The handle that a rank gets if it is in no group.
 */
#define UNISONO_NO_GROUP UINT64_MAX

/**
 * No options: everything has its default.
 */
#define UNISONO_DEFAULTS 0

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The text of this thread's last error: what was expected, what was received, and what to do. Empty if no call of this
 * thread has failed, and never NULL. Valid until the thread's next error.
 */
const char *unisono_last_error(void);

/**
 * Joins the world of this process's launcher; a world of one rank without a launcher. Waits until all ranks have joined.
 * A second call only sets the timeout, unless that is 0.
 *
 * timeout: seconds after which a waiting call fails; 0 for the default: UNISONO_TIMEOUT, or 300.
 */
int32_t unisono_init(double timeout);

/**
 * Leaves the world, which frees all its handles; does nothing without a world. This rank's adds to tables are applied
 * first, and the status reports whether that failed. Call it once, when all work is done: a rank of a job cannot join
 * again.
 */
int32_t unisono_shutdown(void);

/**
 * This process's rank.
 */
int32_t unisono_rank(int32_t *rank);

/**
 * The number of ranks.
 */
int32_t unisono_size(int32_t *size);

/**
 * This process's rank among those of its host.
 */
int32_t unisono_local_rank(int32_t *rank);

/**
 * The number of ranks on this host.
 */
int32_t unisono_local_size(int32_t *size);

/**
 * How often `unisono run --restart` has restarted this rank: 0 in its first process.
 */
int32_t unisono_restarts(int32_t *restarts);

/**
 * Declares that this process continues where the previous incarnation of its rank stopped: its next collective on the world
 * is the one that the others make next. A restarted rank calls it once its state is restored, before its first collective,
 * which otherwise is an error on all ranks; in a rank's first process it does nothing.
 */
int32_t unisono_resume(void);

/**
 * The transport: "alone", "shm", "mpi" or "shm+mpi". Valid until shutdown.
 */
int32_t unisono_transport(const char **name);

/**
 * The launcher of the ranks, such as "unisono run", "Open MPI" or "none". Valid until shutdown.
 */
int32_t unisono_launcher(const char **name);

/**
 * The host name of a rank. Valid until shutdown.
 */
int32_t unisono_host(int32_t rank, const char **name);

/**
 * The version of this library, such as "0.1.0".
 */
int32_t unisono_version(const char **version);

/**
 * Waits until every member has called this. Afterwards, all earlier adds of the members to tables are applied.
 */
int32_t unisono_barrier(unisono_group group);

/**
 * Copies the root's values to every member.
 */
int32_t unisono_broadcast(unisono_group group, void *values, size_t count, int32_t dtype, int32_t root);

/**
 * Starts unisono_broadcast in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
 * has ended.
 */
int32_t unisono_start_broadcast(unisono_group group,
                                void *values,
                                size_t count,
                                int32_t dtype,
                                int32_t root,
                                unisono_pending *pending);

/**
 * Reduces the members' values; every member gets the result, in place.
 */
int32_t unisono_all_reduce(unisono_group group, void *values, size_t count, int32_t dtype, int32_t op);

/**
 * Starts unisono_all_reduce in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
 * has ended.
 */
int32_t unisono_start_all_reduce(unisono_group group,
                                 void *values,
                                 size_t count,
                                 int32_t dtype,
                                 int32_t op,
                                 unisono_pending *pending);

/**
 * Reduces the members' values into the root's buffer; the other members' buffers do not change.
 */
int32_t unisono_reduce(unisono_group group,
                       void *values,
                       size_t count,
                       int32_t dtype,
                       int32_t op,
                       int32_t root);

/**
 * Starts unisono_reduce in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
 * has ended.
 */
int32_t unisono_start_reduce(unisono_group group,
                             void *values,
                             size_t count,
                             int32_t dtype,
                             int32_t op,
                             int32_t root,
                             unisono_pending *pending);

/**
 * Reduces the values of the members up to this one, in place: rank 0 keeps its values (their truth, 0 or 1, under a logical
 * operation), and the last rank gets the result of unisono_all_reduce.
 */
int32_t unisono_scan(unisono_group group,
                     void *values,
                     size_t count,
                     int32_t dtype,
                     int32_t op);

/**
 * Starts unisono_scan in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
 * has ended.
 */
int32_t unisono_start_scan(unisono_group group,
                           void *values,
                           size_t count,
                           int32_t dtype,
                           int32_t op,
                           unisono_pending *pending);

/**
 * Gathers `count` values of every member at the root, in rank order; only the root's output is used, the others may
 * pass NULL.
 */
int32_t unisono_gather(unisono_group group,
                       const void *input,
                       void *output,
                       size_t count,
                       int32_t dtype,
                       int32_t root);

/**
 * Starts unisono_gather in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
 * has ended.
 */
int32_t unisono_start_gather(unisono_group group,
                             const void *input,
                             void *output,
                             size_t count,
                             int32_t dtype,
                             int32_t root,
                             unisono_pending *pending);

/**
 * Scatters the root's values, `count` to every member in rank order; only the root's input is used, the others may
 * pass NULL.
 */
int32_t unisono_scatter(unisono_group group,
                        const void *input,
                        void *output,
                        size_t count,
                        int32_t dtype,
                        int32_t root);

/**
 * Starts unisono_scatter in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
 * has ended.
 */
int32_t unisono_start_scatter(unisono_group group,
                              const void *input,
                              void *output,
                              size_t count,
                              int32_t dtype,
                              int32_t root,
                              unisono_pending *pending);

/**
 * Gathers `count` values of every member, in rank order; every member gets all of them.
 */
int32_t unisono_all_gather(unisono_group group, const void *input, void *output, size_t count, int32_t dtype);

/**
 * Starts unisono_all_gather in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
 * has ended.
 */
int32_t unisono_start_all_gather(unisono_group group,
                                 const void *input,
                                 void *output,
                                 size_t count,
                                 int32_t dtype,
                                 unisono_pending *pending);

/**
 * Reduces the members' inputs, each of `count` times the number of members values; every member gets `count` values of
 * the result, in rank order.
 */
int32_t unisono_reduce_scatter(unisono_group group,
                               const void *input,
                               void *output,
                               size_t count,
                               int32_t dtype,
                               int32_t op);

/**
 * Starts unisono_reduce_scatter in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
 * has ended.
 */
int32_t unisono_start_reduce_scatter(unisono_group group,
                                     const void *input,
                                     void *output,
                                     size_t count,
                                     int32_t dtype,
                                     int32_t op,
                                     unisono_pending *pending);

/**
 * Sends `count` values to every member and receives as many from each: part r of the input goes to rank r, part r of
 * the output comes from rank r.
 */
int32_t unisono_all_to_all(unisono_group group,
                           const void *input,
                           void *output,
                           size_t count,
                           int32_t dtype);

/**
 * Starts unisono_all_to_all in the background: its buffers must not be accessed until unisono_pending_wait reports that the call
 * has ended.
 */
int32_t unisono_start_all_to_all(unisono_group group,
                                 const void *input,
                                 void *output,
                                 size_t count,
                                 int32_t dtype,
                                 unisono_pending *pending);

/**
 * Sends values to a member. Returns when the buffer may be reused: at once for short messages, when the receiver has
 * received them for long ones. Messages with the same tag between two members arrive in order.
 */
int32_t unisono_send(unisono_group group,
                     const void *values,
                     size_t count,
                     int32_t dtype,
                     int32_t to,
                     uint32_t tag);

/**
 * Receives values from a member; type and count must match the sender's.
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
 * Creates the group of these members: ranks of `parent`, in the order of their new ranks. Every member calls this with
 * the same list.
 */
int32_t unisono_group_new(unisono_group parent,
                          const int32_t *members,
                          size_t count,
                          unisono_group *group);

/**
 * Creates one group for each color, its members ordered by key and then by rank. Every member of `parent` calls this.
 * A rank with a negative color is in no group: its handle becomes UNISONO_NO_GROUP.
 */
int32_t unisono_group_split(unisono_group parent,
                            int64_t color,
                            int64_t key,
                            unisono_group *group);

/**
 * Creates a handle of the same group whose calls time out after `seconds`.
 */
int32_t unisono_group_with_timeout(unisono_group group, double seconds, unisono_group *changed);

/**
 * Creates a handle of the same group whose reductions give the same bits on every transport.
 */
int32_t unisono_group_deterministic(unisono_group group, unisono_group *changed);

/**
 * This process's rank in the group.
 */
int32_t unisono_group_rank(unisono_group group, int32_t *rank);

/**
 * The number of ranks in the group.
 */
int32_t unisono_group_size(unisono_group group, int32_t *size);

/**
 * Frees a handle that one of the functions above created.
 */
int32_t unisono_group_free(unisono_group group);

/**
 * Allocates memory that the ranks of this host share: collectives on it need no copy. It is aligned to 64 bytes and
 * uninitialised. It stays valid until it is freed, even after shutdown.
 */
int32_t unisono_memory_new(size_t bytes,
                           void **memory);

/**
 * Frees memory of unisono_memory_new. NULL is ignored.
 */
int32_t unisono_memory_free(void *memory);

/**
 * Sets this rank's role for tables: "worker", "server", "both" or "none"; NULL is "both". Every rank calls it once, before
 * it creates tables. Optional: otherwise the first table makes every rank both.
 */
int32_t unisono_tables_join(const char *role);

/**
 * The number of workers.
 */
int32_t unisono_workers(int32_t *count);

/**
 * The number of servers.
 */
int32_t unisono_servers(int32_t *count);

/**
 * This rank's worker id, in rank order; -1 if it is not a worker.
 */
int32_t unisono_worker_id(int32_t *id);

/**
 * This rank's server id, in rank order; -1 if it is not a server.
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
 * Waits until all adds that this rank has started are applied, and reports the first error. unisono_barrier does the same.
 */
int32_t unisono_flush(void);

/**
 * Declares that this worker makes no more calls on its tables: with bsp and ssp the others continue without it. Shutdown
 * does the same; unisono_table_finish does it for one table.
 */
int32_t unisono_finish(void);

/**
 * Saves all tables, including the state of their updaters, to a folder or, if the library was built with the feature cloud,
 * to a URL such as s3://bucket/name. Every rank calls it. An existing checkpoint is replaced when the new one is complete.
 */
int32_t unisono_save(const char *target);

/**
 * Loads all tables from a checkpoint of unisono_save, on any number of ranks. Every rank calls it, after all tables are
 * created. If the checkpoint is damaged or belongs to other tables, nothing changes.
 */
int32_t unisono_load(const char *target);

/**
 * Creates options in which nothing is set. The same options may be used for many tables and adds; an add uses the
 * updater's numbers only. For numbers that an add does not set, the table's own options apply.
 */
int32_t unisono_options_new(unisono_options *options);

/**
 * Sets an option whose value is a text:
 *
 * - name: identifies the table in a checkpoint and for a restarted rank;
 * - updater: add (default), sgd, momentum, nesterov, adagrad, rmsprop, adam, adamw,
 *   adamax, adadelta, lion, ftrl, dcasgd, dcasgda, multiverso_adagrad or multiverso_momentum;
 * - consistency: async (default), bsp, bsp:backup=1, bsp:mean, ssp:3 or average;
 * - compression, between hosts: none (default), float16, bfloat16, int8 or topk:0.01;
 * - repeats, for rows or keys that one add lists more than once: sum (one step of the updater with their sum; default unless
 *   the updater is add or sgd) or each (one step for each);
 * - eviction, of a key-value table with the number max_rows: lru (default) or lfu;
 * - init: zero (default), uniform or normal.
 */
int32_t unisono_options_set_text(unisono_options options,
                                 const char *name,
                                 const char *value);

/**
 * Sets an option whose value is a number:
 *
 * - init: the initial value of every element;
 * - low, high (uniform), mean, deviation (normal), seed (both): for random initial values;
 * - reject_nan: 1 to reject adds that contain a NaN;
 * - pipelined: 1 for a sparse matrix with a second view of the changes;
 * - max_rows: the maximum number of rows of a key-value table, which then evicts rows;
 * - parameters of the updater: lr, momentum, rho, lambda, eps, beta1, beta2, alpha, beta, lambda1, lambda2, lr_decay,
 *   initial_accumulator_value, weight_decay; also learning_rate (lr) and epsilon (eps).
 */
int32_t unisono_options_set_number(unisono_options options,
                                   const char *name,
                                   double value);

/**
 * Frees options.
 */
int32_t unisono_options_free(unisono_options options);

/**
 * Creates an array of `size` elements. Every rank calls it, in the same order relative to other tables.
 *
 * initial: as many values, of which those of worker 0 are used; or NULL for the initial values of the options.
 */
int32_t unisono_array_new(size_t size,
                          int32_t dtype,
                          const void *initial,
                          unisono_options options,
                          unisono_table *table);

/**
 * Creates a matrix, distributed by rows. Every rank calls it. See unisono_array_new.
 */
int32_t unisono_matrix_new(size_t rows,
                           size_t cols,
                           int32_t dtype,
                           const void *initial,
                           unisono_options options,
                           unisono_table *table);

/**
 * Creates a matrix that records what each worker has seen, for unisono_table_get_changed. Every rank calls it. See
 * unisono_array_new.
 */
int32_t unisono_sparse_matrix_new(size_t rows,
                                  size_t cols,
                                  int32_t dtype,
                                  const void *initial,
                                  unisono_options options,
                                  unisono_table *table);

/**
 * Creates a handle of the same table whose calls time out after `seconds`.
 */
int32_t unisono_table_with_timeout(unisono_table table, double seconds, unisono_table *changed);

/**
 * Frees the handle of a table. The table's memory is freed when all ranks have done so.
 */
int32_t unisono_table_free(unisono_table table);

/**
 * The number of rows; for an array, the number of elements; for a key-value table, the current number of keys.
 */
int32_t unisono_table_rows(unisono_table table,
                           size_t *rows);

/**
 * The number of columns; 1 for an array; for a key-value table, the number of values per key.
 */
int32_t unisono_table_cols(unisono_table table, size_t *cols);

/**
 * The element type.
 */
int32_t unisono_table_dtype(unisono_table table, int32_t *dtype);

/**
 * The name. Valid until the handle is freed.
 */
int32_t unisono_table_name(unisono_table table, const char **name);

/**
 * The kind: "array", "matrix", "sparse-matrix" or "key-value". Valid until the handle is freed.
 */
int32_t unisono_table_kind(unisono_table table, const char **kind);

/**
 * The updater, which defines the effect of an add. Valid until the handle is freed.
 */
int32_t unisono_table_updater(unisono_table table, const char **updater);

/**
 * The consistency, which bounds how far workers may drift apart. Valid until the handle is freed.
 */
int32_t unisono_table_consistency(unisono_table table, const char **consistency);

/**
 * The number of steps of this worker: its own ticks, those of its previous incarnation if it was restarted, and those that
 * the others made without it. A loop that continues at this step can be restarted.
 */
int32_t unisono_table_clock(unisono_table table,
                            uint64_t *steps);

/**
 * Staleness of the values that this rank's gets returned: histogram[i] counts the gets at which the slowest other worker
 * was i steps behind. Steps are ticks with ssp, adds otherwise.
 *
 * capacity: the length of histogram, which may be NULL if 0; count: the number of entries available.
 */
int32_t unisono_table_staleness(unisono_table table,
                                uint64_t *histogram,
                                size_t capacity,
                                size_t *count);

/**
 * Copies rows into `values`, which has space for `count` elements: exactly the elements of the rows.
 *
 * rows: row ids of a matrix, from 0, in any order; NULL for the full table, and always NULL for an array.
 */
int32_t unisono_table_get(unisono_table table,
                          const int64_t *rows,
                          size_t row_count,
                          void *values,
                          size_t count);

/**
 * Adds `delta` to rows, through the table's updater; returns when the add is applied. A row that is listed twice is added
 * to twice.
 */
int32_t unisono_table_add(unisono_table table,
                          const int64_t *rows,
                          size_t row_count,
                          const void *delta,
                          size_t count,
                          unisono_options options);

/**
 * As unisono_table_add, but waits in the background if it must wait. `delta` may be reused at once; unisono_flush,
 * unisono_barrier or the next call on this table reports an error.
 */
int32_t unisono_table_add_soon(unisono_table table,
                               const int64_t *rows,
                               size_t row_count,
                               const void *delta,
                               size_t count,
                               unisono_options options);

/**
 * Copies rows into separate buffers: values[i] has space for one row.
 */
int32_t unisono_table_get_separate(unisono_table table,
                                   const int64_t *rows,
                                   size_t row_count,
                                   void *const *values);

/**
 * Adds separate buffers to rows: delta[i] holds one row.
 */
int32_t unisono_table_add_separate(unisono_table table,
                                   const int64_t *rows,
                                   size_t row_count,
                                   const void *const *delta,
                                   unisono_options options);

/**
 * For a sparse matrix: copies the rows that changed since this worker's last call with the same `buffer` (0, or 1 if the
 * table is pipelined) to their positions in `values`; the rest of `values` is not modified.
 *
 * changed: space for the ids of these rows, as many as were requested, or NULL; changed_count: their number.
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
 * Starts a get in the background: `values` must not be accessed until unisono_pending_wait reports that the get has ended.
 */
int32_t unisono_table_start_get(unisono_table table,
                                const int64_t *rows,
                                size_t row_count,
                                void *values,
                                size_t count,
                                unisono_pending *pending);

/**
 * Starts an add in the background: `delta` must not be accessed until unisono_pending_wait reports that the add has ended.
 */
int32_t unisono_table_start_add(unisono_table table,
                                const int64_t *rows,
                                size_t row_count,
                                const void *delta,
                                size_t count,
                                unisono_options options,
                                unisono_pending *pending);

/**
 * Begins this worker's next step; the staleness bound of ssp counts steps. With average, all workers call it, and their
 * copies become the average of all copies.
 */
int32_t unisono_table_tick(unisono_table table);

/**
 * Waits until all adds that this rank has started on this table are applied, and reports the first error. unisono_flush
 * does the same for all tables.
 */
int32_t unisono_table_flush(unisono_table table);

/**
 * Declares that this worker makes no more calls on this table: with bsp and ssp the others continue without it. Its adds
 * are applied first. unisono_finish does the same for all tables.
 */
int32_t unisono_table_finish(unisono_table table);

/**
 * Creates a key-value table: every key has `dim` values. Every rank calls it, in the same order relative to other tables.
 *
 * keys: "int" for 64-bit integers, "bytes" for byte strings.
 */
int32_t unisono_key_value_new(const char *keys,
                              size_t dim,
                              int32_t dtype,
                              unisono_options options,
                              unisono_table *table);

/**
 * Copies the values of these keys into `values`, one row per key; it has space for `count` elements. An absent key reads
 * as its initial values, and stays absent.
 */
int32_t unisono_key_value_get(unisono_table table,
                              const unisono_keys *keys,
                              void *values,
                              size_t count);

/**
 * Adds one row of `delta` to each of these keys, through the table's updater; returns when the add is applied. A key
 * that occurs twice is added to twice.
 */
int32_t unisono_key_value_add(unisono_table table,
                              const unisono_keys *keys,
                              const void *delta,
                              size_t count,
                              unisono_options options);

/**
 * As unisono_key_value_add, but waits in the background if it must wait. Keys and `delta` may be reused at once;
 * unisono_flush, unisono_barrier or the next call on this table reports an error.
 */
int32_t unisono_key_value_add_soon(unisono_table table,
                                   const unisono_keys *keys,
                                   const void *delta,
                                   size_t count,
                                   unisono_options options);

/**
 * Starts a get in the background: `values` must not be accessed until unisono_pending_wait reports that the get has ended.
 */
int32_t unisono_key_value_start_get(unisono_table table,
                                    const unisono_keys *keys,
                                    void *values,
                                    size_t count,
                                    unisono_pending *pending);

/**
 * Starts an add in the background: `delta` must not be accessed until unisono_pending_wait reports that the add has ended.
 */
int32_t unisono_key_value_start_add(unisono_table table,
                                    const unisono_keys *keys,
                                    const void *delta,
                                    size_t count,
                                    unisono_options options,
                                    unisono_pending *pending);

/**
 * Removes these keys from all hosts, with the updater's state; returns when they are removed. Keys that are absent are
 * ignored. Any rank may call it; it waits for no other worker.
 */
int32_t unisono_key_value_delete(unisono_table table,
                                 const unisono_keys *keys);

/**
 * As unisono_key_value_delete, but in the background. Keys may be reused at once; unisono_flush, unisono_barrier or the
 * next call on this table reports an error.
 */
int32_t unisono_key_value_delete_soon(unisono_table table,
                                      const unisono_keys *keys);

/**
 * Whether each of these keys is present, that is, a worker has added to it: present[i] becomes 1 or 0.
 */
int32_t unisono_key_value_contains(unisono_table table, const unisono_keys *keys, uint8_t *present);

/**
 * Copies all keys and values of a key-value table. Concurrent adds by other workers may or may not be included.
 */
int32_t unisono_key_value_items(unisono_table table,
                                unisono_items *items);

/**
 * The keys that a key-value table with the option max_rows has evicted since the last report to any rank, without values, and
 * the number of keys that were evicted too long ago to be listed.
 */
int32_t unisono_key_value_evicted(unisono_table table,
                                  unisono_items *items,
                                  uint64_t *missed);

/**
 * The number of keys.
 */
int32_t unisono_items_count(unisono_items items, size_t *count);

/**
 * The keys, if they are numbers. Valid until the items are freed.
 */
int32_t unisono_items_numbers(unisono_items items, const int64_t **numbers);

/**
 * One of the keys, if they are bytes. Valid until the items are freed.
 */
int32_t unisono_items_bytes(unisono_items items, size_t index, const void **bytes, size_t *length);

/**
 * The values: one row per key, in the order of the keys. Valid until the items are freed.
 */
int32_t unisono_items_values(unisono_items items, const void **values);

/**
 * Frees items.
 */
int32_t unisono_items_free(unisono_items items);

/**
 * Waits for a call in the background, up to `timeout` seconds (0: until the call's own deadline), and returns its status.
 * If the call is still running then, the status is UNISONO_TIMEOUT and the handle stays valid; otherwise it is freed.
 */
int32_t unisono_pending_wait(unisono_pending pending,
                             double timeout);

/**
 * Whether a wait would return at once: 1 if so, 0 if not.
 */
int32_t unisono_pending_done(unisono_pending pending, int32_t *done);

/**
 * Calls a function when a call in the background has ended: on the thread that has made it, or here if it has ended
 * already. The group's next call in the background begins when the function has returned, so it must not wait for one. The
 * handle stays valid: unisono_pending_wait returns the call's status.
 */
int32_t unisono_pending_on_done(unisono_pending pending,
                                void (*callback)(void*),
                                void *context);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* UNISONO_H */
