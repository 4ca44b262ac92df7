/* Crew: threads of the process that share the parts of one kernel's work, without the interpreter.
 *
 * A batch of 65,536 rows is gathered in about a millisecond. Python threads would need half of that to wake up and to take turns
 * with the interpreter's lock, so helpers wait for the next call actively for a moment, and asleep afterwards. One call at a time
 * has the crew; a call that finds it busy, or that cannot start a thread, does its work alone. A forked process starts anew.
 */
#ifndef FASTPATH_CREW_H
#define FASTPATH_CREW_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define FASTPATH_CREW 64
/* Longest active wait. The next batch of a reader without other work comes after some ten microseconds of Python. */
#define FASTPATH_SPIN_NS 100000
#define FASTPATH_STACK (1 << 20)

/* Does part `part` of the work; returns 0, or the address that could not be read. */
typedef uint64_t (*fastpath_part)(void *work, int64_t part);

static struct {
    pthread_mutex_t turn; /* held by the call that has the crew */
    pthread_mutex_t lock; /* guards all below but the atomics */
    pthread_cond_t called, left;
    int helpers, asleep, places;
    _Atomic uint64_t call;
    _Atomic int inside;
    fastpath_part kernel;
    void *work;
    int64_t parts;
    _Atomic int64_t next;
    _Atomic uint64_t fault;
} fastpath_crew = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER};

static int64_t fastpath_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void fastpath_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Wait actively until the counter differs, or matches, for a moment. */
static void fastpath_spin(_Atomic uint64_t *call, uint64_t seen, _Atomic int *inside)
{
    int64_t end = fastpath_now() + FASTPATH_SPIN_NS;
    do {
        for (int i = 0; i < 64; i++) {
            if (call != NULL ? atomic_load_explicit(call, memory_order_relaxed) != seen
                             : atomic_load_explicit(inside, memory_order_relaxed) == 0)
                return;
            fastpath_pause();
        }
    } while (fastpath_now() < end);
}

/* Do parts until none is left; after a fault no further one begins. */
static void fastpath_share(void)
{
    int64_t part;
    while (atomic_load(&fastpath_crew.fault) == 0 && (part = atomic_fetch_add(&fastpath_crew.next, 1)) < fastpath_crew.parts) {
        uint64_t fault = fastpath_crew.kernel(fastpath_crew.work, part);
        if (fault != 0)
            atomic_store(&fastpath_crew.fault, fault);
    }
}

static void *fastpath_help(void *seen_at_start)
{
    uint64_t seen = (uint64_t)(uintptr_t)seen_at_start;
    for (;;) {
        fastpath_spin(&fastpath_crew.call, seen, NULL);
        pthread_mutex_lock(&fastpath_crew.lock);
        fastpath_crew.asleep++;
        while (atomic_load(&fastpath_crew.call) == seen)
            pthread_cond_wait(&fastpath_crew.called, &fastpath_crew.lock);
        fastpath_crew.asleep--;
        seen = atomic_load(&fastpath_crew.call);
        if (fastpath_crew.places > 0) {
            fastpath_crew.places--;
            atomic_fetch_add(&fastpath_crew.inside, 1);
            pthread_mutex_unlock(&fastpath_crew.lock);
            fastpath_share();
            pthread_mutex_lock(&fastpath_crew.lock);
            if (atomic_fetch_sub(&fastpath_crew.inside, 1) == 1)
                pthread_cond_signal(&fastpath_crew.left);
        }
        pthread_mutex_unlock(&fastpath_crew.lock);
    }
    return NULL;
}

/* Start helpers up to a number, with the lock held; the system may refuse some. Signals go to other threads, faults excepted. */
static void fastpath_hire(int helpers)
{
    sigset_t signals, before;
    pthread_attr_t attributes;
    pthread_t thread;
    if (fastpath_crew.helpers >= helpers || pthread_attr_init(&attributes) != 0)
        return;
    sigfillset(&signals);
    for (const int *fault = (const int[]){SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGABRT, SIGTRAP, 0}; *fault != 0; fault++)
        sigdelset(&signals, *fault);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, FASTPATH_STACK);
    pthread_sigmask(SIG_SETMASK, &signals, &before);
    while (fastpath_crew.helpers < helpers &&
           pthread_create(&thread, &attributes, fastpath_help, (void *)(uintptr_t)atomic_load(&fastpath_crew.call)) == 0)
        fastpath_crew.helpers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* Do all parts in up to `threads` threads, this one included; returns 0, or the address that one part could not read. */
static uint64_t fastpath_together(fastpath_part kernel, void *work, int64_t parts, int64_t threads)
{
    int helpers = (int)((threads < FASTPATH_CREW ? threads : FASTPATH_CREW) - 1);
    uint64_t fault = 0;
    if (helpers < 1 || parts < 2 || pthread_mutex_trylock(&fastpath_crew.turn) != 0) {
        for (int64_t part = 0; part < parts && fault == 0; part++)
            fault = kernel(work, part);
        return fault;
    }
    pthread_mutex_lock(&fastpath_crew.lock);
    fastpath_hire(helpers);
    fastpath_crew.kernel = kernel;
    fastpath_crew.work = work;
    fastpath_crew.parts = parts;
    fastpath_crew.places = helpers;
    atomic_store(&fastpath_crew.next, 0);
    atomic_store(&fastpath_crew.fault, 0);
    atomic_fetch_add(&fastpath_crew.call, 1);
    if (fastpath_crew.asleep > 0)
        pthread_cond_broadcast(&fastpath_crew.called);
    pthread_mutex_unlock(&fastpath_crew.lock);
    fastpath_share();
    /* Nobody begins from here on, and whoever began is waited for: the work belongs to the caller. */
    pthread_mutex_lock(&fastpath_crew.lock);
    fastpath_crew.places = 0;
    pthread_mutex_unlock(&fastpath_crew.lock);
    fastpath_spin(NULL, 0, &fastpath_crew.inside);
    pthread_mutex_lock(&fastpath_crew.lock);
    while (atomic_load(&fastpath_crew.inside) > 0)
        pthread_cond_wait(&fastpath_crew.left, &fastpath_crew.lock);
    fault = atomic_load(&fastpath_crew.fault);
    pthread_mutex_unlock(&fastpath_crew.lock);
    pthread_mutex_unlock(&fastpath_crew.turn);
    return fault;
}

/* In a forked process there are no helpers, and threads of the parent may have held the locks. */
static void fastpath_forget_crew(void)
{
    pthread_mutex_init(&fastpath_crew.turn, NULL);
    pthread_mutex_init(&fastpath_crew.lock, NULL);
    pthread_cond_init(&fastpath_crew.called, NULL);
    pthread_cond_init(&fastpath_crew.left, NULL);
    fastpath_crew.helpers = fastpath_crew.asleep = fastpath_crew.places = 0;
    atomic_store(&fastpath_crew.inside, 0);
}

#endif
