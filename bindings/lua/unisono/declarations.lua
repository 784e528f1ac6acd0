-- Made from bindings/c/include/unisono.h: run `make header` after a change.
return [[
typedef enum {
    UNISONO_OK = 0,
    UNISONO_USAGE = 1,
    UNISONO_TIMEOUT = 2,
    UNISONO_PEER_LOST = 3,
    UNISONO_IO = 4,
    UNISONO_UNSUPPORTED = 5,
    UNISONO_INTERNAL = 6,
    UNISONO_INTERRUPTED = 7,
} unisono_status;
typedef enum {
    UNISONO_F32 = 1,
    UNISONO_F64 = 2,
    UNISONO_F16 = 3,
    UNISONO_BF16 = 4,
    UNISONO_I8 = 5,
    UNISONO_U8 = 6,
    UNISONO_I32 = 7,
    UNISONO_I64 = 8,
} unisono_dtype;
typedef enum {
    UNISONO_SUM = 1,
    UNISONO_AVG = 2,
    UNISONO_PROD = 3,
    UNISONO_MIN = 4,
    UNISONO_MAX = 5,
} unisono_op;
typedef uint64_t unisono_group;
typedef uint64_t unisono_options;
typedef uint64_t unisono_table;
typedef uint64_t unisono_pending;
typedef struct {
    const int64_t *numbers;
    const void *const *bytes;
    const size_t *lengths;
    size_t count;
} unisono_keys;
typedef uint64_t unisono_items;
static const int UNISONO_WORLD = 0;
static const int UNISONO_DEFAULTS = 0;
const char *unisono_last_error(void);
int32_t unisono_init(double timeout);
int32_t unisono_shutdown(void);
int32_t unisono_rank(int32_t *rank);
int32_t unisono_size(int32_t *size);
int32_t unisono_local_rank(int32_t *rank);
int32_t unisono_local_size(int32_t *size);
int32_t unisono_restarts(int32_t *restarts);
int32_t unisono_resume(void);
int32_t unisono_transport(const char **name);
int32_t unisono_launcher(const char **name);
int32_t unisono_host(int32_t rank, const char **name);
int32_t unisono_version(const char **version);
int32_t unisono_barrier(unisono_group group);
int32_t unisono_broadcast(unisono_group group, void *values, size_t count, int32_t dtype, int32_t root);
int32_t unisono_all_reduce(unisono_group group, void *values, size_t count, int32_t dtype, int32_t op);
int32_t unisono_reduce(unisono_group group,
                       void *values,
                       size_t count,
                       int32_t dtype,
                       int32_t op,
                       int32_t root);
int32_t unisono_gather(unisono_group group,
                       const void *input,
                       void *output,
                       size_t count,
                       int32_t dtype,
                       int32_t root);
int32_t unisono_scatter(unisono_group group,
                        const void *input,
                        void *output,
                        size_t count,
                        int32_t dtype,
                        int32_t root);
int32_t unisono_all_gather(unisono_group group, const void *input, void *output, size_t count, int32_t dtype);
int32_t unisono_reduce_scatter(unisono_group group,
                               const void *input,
                               void *output,
                               size_t count,
                               int32_t dtype,
                               int32_t op);
int32_t unisono_all_to_all(unisono_group group,
                           const void *input,
                           void *output,
                           size_t count,
                           int32_t dtype);
int32_t unisono_send(unisono_group group,
                     const void *values,
                     size_t count,
                     int32_t dtype,
                     int32_t to,
                     uint32_t tag);
int32_t unisono_recv(unisono_group group,
                     void *values,
                     size_t count,
                     int32_t dtype,
                     int32_t from,
                     uint32_t tag);
int32_t unisono_gather_varied(unisono_group group,
                              const void *input,
                              void *output,
                              const size_t *counts,
                              int32_t dtype,
                              int32_t root);
int32_t unisono_scatter_varied(unisono_group group,
                               const void *input,
                               void *output,
                               const size_t *counts,
                               int32_t dtype,
                               int32_t root);
int32_t unisono_all_gather_varied(unisono_group group,
                                  const void *input,
                                  void *output,
                                  const size_t *counts,
                                  int32_t dtype);
int32_t unisono_reduce_scatter_varied(unisono_group group,
                                      const void *input,
                                      void *output,
                                      const size_t *counts,
                                      int32_t dtype,
                                      int32_t op);
int32_t unisono_all_to_all_varied(unisono_group group,
                                  const void *input,
                                  const size_t *send_counts,
                                  void *output,
                                  const size_t *receive_counts,
                                  int32_t dtype);
int32_t unisono_group_new(unisono_group parent,
                          const int32_t *members,
                          size_t count,
                          unisono_group *group);
int32_t unisono_group_split(unisono_group parent,
                            int64_t color,
                            int64_t key,
                            unisono_group *group);
int32_t unisono_group_with_timeout(unisono_group group, double seconds, unisono_group *changed);
int32_t unisono_group_deterministic(unisono_group group, unisono_group *changed);
int32_t unisono_group_rank(unisono_group group, int32_t *rank);
int32_t unisono_group_size(unisono_group group, int32_t *size);
int32_t unisono_group_free(unisono_group group);
int32_t unisono_memory_new(size_t bytes,
                           void **memory);
int32_t unisono_memory_free(void *memory);
int32_t unisono_tables_join(const char *role);
int32_t unisono_workers(int32_t *count);
int32_t unisono_servers(int32_t *count);
int32_t unisono_worker_id(int32_t *id);
int32_t unisono_server_id(int32_t *id);
int32_t unisono_worker_rank(int32_t id, int32_t *rank);
int32_t unisono_server_rank(int32_t id, int32_t *rank);
int32_t unisono_flush(void);
int32_t unisono_finish(void);
int32_t unisono_save(const char *target);
int32_t unisono_load(const char *target);
int32_t unisono_options_new(unisono_options *options);
int32_t unisono_options_set_text(unisono_options options, const char *name, const char *value);
int32_t unisono_options_set_number(unisono_options options,
                                   const char *name,
                                   double value);
int32_t unisono_options_free(unisono_options options);
int32_t unisono_array_new(size_t size,
                          int32_t dtype,
                          const void *initial,
                          unisono_options options,
                          unisono_table *table);
int32_t unisono_matrix_new(size_t rows,
                           size_t cols,
                           int32_t dtype,
                           const void *initial,
                           unisono_options options,
                           unisono_table *table);
int32_t unisono_sparse_matrix_new(size_t rows,
                                  size_t cols,
                                  int32_t dtype,
                                  const void *initial,
                                  unisono_options options,
                                  unisono_table *table);
int32_t unisono_table_with_timeout(unisono_table table, double seconds, unisono_table *changed);
int32_t unisono_table_free(unisono_table table);
int32_t unisono_table_rows(unisono_table table,
                           size_t *rows);
int32_t unisono_table_cols(unisono_table table, size_t *cols);
int32_t unisono_table_dtype(unisono_table table, int32_t *dtype);
int32_t unisono_table_name(unisono_table table, const char **name);
int32_t unisono_table_kind(unisono_table table, const char **kind);
int32_t unisono_table_updater(unisono_table table, const char **updater);
int32_t unisono_table_consistency(unisono_table table, const char **consistency);
int32_t unisono_table_clock(unisono_table table,
                            uint64_t *steps);
int32_t unisono_table_staleness(unisono_table table,
                                uint64_t *histogram,
                                size_t capacity,
                                size_t *count);
int32_t unisono_table_get(unisono_table table,
                          const int64_t *rows,
                          size_t row_count,
                          void *values,
                          size_t count);
int32_t unisono_table_add(unisono_table table,
                          const int64_t *rows,
                          size_t row_count,
                          const void *delta,
                          size_t count,
                          unisono_options options);
int32_t unisono_table_add_soon(unisono_table table,
                               const int64_t *rows,
                               size_t row_count,
                               const void *delta,
                               size_t count,
                               unisono_options options);
int32_t unisono_table_get_separate(unisono_table table,
                                   const int64_t *rows,
                                   size_t row_count,
                                   void *const *values);
int32_t unisono_table_add_separate(unisono_table table,
                                   const int64_t *rows,
                                   size_t row_count,
                                   const void *const *delta,
                                   unisono_options options);
int32_t unisono_table_get_changed(unisono_table table,
                                  int32_t buffer,
                                  const int64_t *rows,
                                  size_t row_count,
                                  void *values,
                                  size_t count,
                                  int64_t *changed,
                                  size_t *changed_count);
int32_t unisono_table_start_get(unisono_table table,
                                const int64_t *rows,
                                size_t row_count,
                                void *values,
                                size_t count,
                                unisono_pending *pending);
int32_t unisono_table_start_add(unisono_table table,
                                const int64_t *rows,
                                size_t row_count,
                                const void *delta,
                                size_t count,
                                unisono_options options,
                                unisono_pending *pending);
int32_t unisono_table_tick(unisono_table table);
int32_t unisono_table_flush(unisono_table table);
int32_t unisono_table_finish(unisono_table table);
int32_t unisono_key_value_new(const char *keys,
                              size_t dim,
                              int32_t dtype,
                              unisono_options options,
                              unisono_table *table);
int32_t unisono_key_value_get(unisono_table table,
                              const unisono_keys *keys,
                              void *values,
                              size_t count);
int32_t unisono_key_value_add(unisono_table table,
                              const unisono_keys *keys,
                              const void *delta,
                              size_t count,
                              unisono_options options);
int32_t unisono_key_value_add_soon(unisono_table table,
                                   const unisono_keys *keys,
                                   const void *delta,
                                   size_t count,
                                   unisono_options options);
int32_t unisono_key_value_start_get(unisono_table table,
                                    const unisono_keys *keys,
                                    void *values,
                                    size_t count,
                                    unisono_pending *pending);
int32_t unisono_key_value_start_add(unisono_table table,
                                    const unisono_keys *keys,
                                    const void *delta,
                                    size_t count,
                                    unisono_options options,
                                    unisono_pending *pending);
int32_t unisono_key_value_contains(unisono_table table, const unisono_keys *keys, uint8_t *present);
int32_t unisono_key_value_items(unisono_table table,
                                unisono_items *items);
int32_t unisono_items_count(unisono_items items, size_t *count);
int32_t unisono_items_numbers(unisono_items items, const int64_t **numbers);
int32_t unisono_items_bytes(unisono_items items, size_t index, const void **bytes, size_t *length);
int32_t unisono_items_values(unisono_items items, const void **values);
int32_t unisono_items_free(unisono_items items);
int32_t unisono_pending_wait(unisono_pending pending,
                             double timeout);
int32_t unisono_pending_done(unisono_pending pending, int32_t *done);
]]
