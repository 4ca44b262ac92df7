/* Faults of files and sockets, for any process: loaded by LD_PRELOAD, told what to do by a mapped file.

   The plan is shared by all processes that map it, and so are its counters. Python fills it in and reads the counters
   (tests/faults/plan.py has the same layout). Without a plan every call goes straight to the C library. */

#ifndef MODYN_TESTS_FAULTS_PLAN_H
#define MODYN_TESTS_FAULTS_PLAN_H

#define _GNU_SOURCE
#include <stdint.h>

enum call { OPEN, READ, WRITE, FSYNC, RENAME, REMOVE, MKDIR, TRUNCATE, CONNECT, SEND, RECV, CLOCK };
enum action { COUNT, FAIL, SHORT, DELAY, KILL, JUMP };

#define MAX_RULES 16
#define LONGEST_PATH 512

typedef struct {
    uint32_t calls;  /* a bit per enum call */
    uint32_t action;
    int64_t value;   /* FAIL: errno; DELAY: microseconds; JUMP: seconds */
    int64_t after;   /* matching calls before the first that is struck */
    int64_t times;   /* calls that are struck before it heals; 0: it never heals */
    int64_t seen;    /* matching calls so far */
    int64_t hits;    /* calls struck so far */
    char pattern[216]; /* of fnmatch, over the path below the root; sockets and clocks are matched by their call alone */
} rule_t;

typedef struct {
    char root[LONGEST_PATH];   /* files below it are ours, all others are left alone */
    char shadow[LONGEST_PATH]; /* folder of what was synced; empty: not kept */
    char peer[LONGEST_PATH];   /* beginning of the address of the catalog: a path, or :PORT */
    int64_t clock_offset;      /* seconds that the clock is ahead */
    uint32_t n_rules;
    uint32_t unused;
    rule_t rules[MAX_RULES];
} plan_t;

typedef struct {
    int error;    /* errno to fail with; 0: none */
    int is_short; /* do half of it */
} fate_t;

extern plan_t *plan;

/* Fate of a call on a path below the root (relative), or on a socket or clock (empty path). May not return: KILL. */
fate_t fate_of(enum call call, const char *below);
/* Path below the root, by name or by descriptor; NULL for what is not ours. `buffer` has LONGEST_PATH * 2 bytes. */
const char *below_root(int folder, const char *path, char *buffer);
const char *below_root_of(int descriptor, char *buffer);

/* Note that everything in a file, or all names in a folder, survive a power cut from now on. */
void remember(int descriptor);

#endif
