-- What these files use of bindings/c/include/unisono.h: run `make header` after a change.
return [[
typedef enum { UNISONO_F32 = 1, UNISONO_F64 = 2, UNISONO_F16 = 3, UNISONO_BF16 = 4, UNISONO_I8 = 5, UNISONO_U8 = 6, UNISONO_I32 = 7, UNISONO_I64 = 8, UNISONO_BOOL = 9, UNISONO_I16 = 10, UNISONO_U16 = 11, UNISONO_U32 = 12, UNISONO_U64 = 13, UNISONO_C64 = 14, UNISONO_C128 = 15, UNISONO_F8_E4M3FN = 16, UNISONO_F8_E4M3FNUZ = 17, UNISONO_F8_E5M2 = 18, UNISONO_F8_E5M2FNUZ = 19, UNISONO_F8_E8M0FNU = 20, } unisono_dtype;
typedef uint64_t unisono_group;
typedef uint64_t unisono_pending;
typedef uint64_t unisono_options;
typedef uint64_t unisono_table;
typedef uint64_t unisono_items;
const char *unisono_last_error(void);
int32_t unisono_init(double timeout);
int32_t unisono_shutdown(void);
int32_t unisono_rank(int32_t *rank);
int32_t unisono_size(int32_t *size);
int32_t unisono_barrier(unisono_group group);
int32_t unisono_tables_join(const char *role);
int32_t unisono_workers(int32_t *count);
int32_t unisono_servers(int32_t *count);
int32_t unisono_worker_id(int32_t *id);
int32_t unisono_server_id(int32_t *id);
int32_t unisono_flush(void);
int32_t unisono_finish(void);
int32_t unisono_save(const char *target);
int32_t unisono_load(const char *target);
int32_t unisono_options_new(unisono_options *options);
int32_t unisono_options_set_text(unisono_options options, const char *name, const char *value);
int32_t unisono_options_set_number(unisono_options options, const char *name, double value);
int32_t unisono_options_free(unisono_options options);
int32_t unisono_array_new(size_t size, int32_t dtype, const void *initial, unisono_options options, unisono_table *table);
int32_t unisono_matrix_new(size_t rows, size_t cols, int32_t dtype, const void *initial, unisono_options options, unisono_table *table);
int32_t unisono_table_free(unisono_table table);
int32_t unisono_table_clock(unisono_table table, uint64_t *steps);
int32_t unisono_table_staleness(unisono_table table, uint64_t *histogram, size_t capacity, size_t *count);
int32_t unisono_table_get(unisono_table table, const int64_t *rows, size_t row_count, void *values, size_t count);
int32_t unisono_table_add(unisono_table table, const int64_t *rows, size_t row_count, const void *delta, size_t count, unisono_options options);
int32_t unisono_table_add_soon(unisono_table table, const int64_t *rows, size_t row_count, const void *delta, size_t count, unisono_options options);
int32_t unisono_table_tick(unisono_table table);
int32_t unisono_table_flush(unisono_table table);
int32_t unisono_table_finish(unisono_table table);
]]
