/* Linear regression on any number of workers: each has its own data, and all share the weights in a table.
 *
 * Build and start it:
 *     make lib
 *     cc -std=c11 -I bindings/c/include examples/tables/linear_regression.c -o target/linear_regression \
 *         -L target/release -lunisono -Wl,-rpath,$PWD/target/release
 *     unisono run -n 4 -- target/linear_regression
 */
#include <stdio.h>
#include <stdlib.h>

#include "unisono.h"

enum { WEIGHTS = 3, BATCH = 32, STEPS = 400 };

/* The true parameters, a bias and two slopes, which the regression has to find. */
static const double truth[WEIGHTS] = {0.5, 3.0, -2.0};

/* Ends the program with the library's message if a call fails. */
static void check(int32_t status) {
    if (status != UNISONO_OK) {
        fprintf(stderr, "%s\n", unisono_last_error());
        exit(1);
    }
}

/* A number between -1 and 1; every worker has its own sequence. */
static double random_number(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 33) / (double)(1u << 30) - 1.0;
}

int main(void) {
    int32_t worker, workers;
    unisono_options options;
    unisono_table table;
    double weights[WEIGHTS], gradient[WEIGHTS];

    check(unisono_init(0.0));
    check(unisono_tables_join("both"));
    check(unisono_worker_id(&worker));
    check(unisono_workers(&workers));

    /* An add subtracts the gradient; a get misses at most two steps of any worker. */
    check(unisono_options_new(&options));
    check(unisono_options_set_text(options, "name", "weights"));
    check(unisono_options_set_text(options, "updater", "sgd"));
    check(unisono_options_set_text(options, "consistency", "ssp:2"));
    check(unisono_array_new(WEIGHTS, UNISONO_F64, NULL, options, &table));
    check(unisono_options_free(options));

    uint64_t state = 1000u + (uint64_t)worker;
    for (int step = 0; step < STEPS; step++) {
        check(unisono_table_get(table, NULL, 0, weights, WEIGHTS));
        for (int i = 0; i < WEIGHTS; i++) gradient[i] = 0.0;
        for (int sample = 0; sample < BATCH; sample++) {
            double x[WEIGHTS] = {1.0, random_number(&state), random_number(&state)};
            double error = 0.01 * random_number(&state);
            for (int i = 0; i < WEIGHTS; i++) error += (weights[i] - truth[i]) * x[i];
            /* The sgd updater takes the gradient times the learning rate, here 0.2. */
            for (int i = 0; i < WEIGHTS; i++) gradient[i] += 0.2 * error * x[i] / BATCH / workers;
        }
        check(unisono_table_add(table, NULL, 0, gradient, WEIGHTS, UNISONO_DEFAULTS));
        check(unisono_table_tick(table));
    }

    check(unisono_barrier(UNISONO_WORLD));
    check(unisono_table_get(table, NULL, 0, weights, WEIGHTS));
    if (worker == 0) printf("found %.3f %.3f %.3f\n", weights[0], weights[1], weights[2]);
    for (int i = 0; i < WEIGHTS; i++) {
        double off = weights[i] > truth[i] ? weights[i] - truth[i] : truth[i] - weights[i];
        if (off > 0.02) {
            fprintf(stderr, "weight %d is %.3f and should be %.3f\n", i, weights[i], truth[i]);
            return 1;
        }
    }
    check(unisono_shutdown());
    return 0;
}
