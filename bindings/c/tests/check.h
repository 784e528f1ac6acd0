/* Checks shared by the test programs, which report where and why they failed. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unisono.h"

/* Ends the program unless the condition holds. */
#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s does not hold (last error: %s)\n", __FILE__, __LINE__, #condition,     \
                    unisono_last_error());                                                                    \
            exit(1);                                                                                          \
        }                                                                                                     \
    } while (0)

/* Ends the program unless the call succeeds. */
#define OK(call) CHECK((call) == UNISONO_OK)

/* Ends the program unless the call fails with this status and an error text that contains these words. */
#define FAILS(call, status, words)                                                                            \
    do {                                                                                                      \
        CHECK((call) == (status));                                                                            \
        CHECK(strstr(unisono_last_error(), words) != NULL);                                                   \
    } while (0)

#endif
