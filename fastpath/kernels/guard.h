/* Guard of kernels that read mapped files: they survive when such a file is cut short.
 *
 * Touching a page behind the end of a mapped file raises SIGBUS in the thread that touched it. While a thread is inside
 * fastpath_guarded() the handler jumps back there; any other SIGBUS it passes to the previous handler.
 */
#ifndef FASTPATH_GUARD_H
#define FASTPATH_GUARD_H

#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>

typedef void (*fastpath_kernel)(void *arguments);

static __thread sigjmp_buf *fastpath_jump = NULL;
static __thread void *fastpath_fault = NULL;
static __thread volatile sig_atomic_t fastpath_handing_on = 0;
static struct sigaction fastpath_previous;

static void fastpath_on_bus_error(int number, siginfo_t *info, void *context)
{
    if (fastpath_jump != NULL) {
        fastpath_fault = info->si_addr != NULL ? info->si_addr : (void *)1;
        siglongjmp(*fastpath_jump, 1);
    }
    /* A previous handler that raises the signal again must end the process, not loop through this one for ever. */
    if (fastpath_handing_on || fastpath_previous.sa_handler == SIG_DFL || fastpath_previous.sa_handler == SIG_IGN) {
        signal(SIGBUS, SIG_DFL);
        return; /* the instruction runs again and triggers the default action */
    }
    fastpath_handing_on = 1;
    if (fastpath_previous.sa_flags & SA_SIGINFO)
        fastpath_previous.sa_sigaction(number, info, context);
    else
        fastpath_previous.sa_handler(number);
    fastpath_handing_on = 0;
}

/* Put the handler in place unless it is; others (faulthandler) may have taken the signal since. Call with the GIL held. */
static int fastpath_install_guard(void)
{
    struct sigaction current, ours;
    if (sigaction(SIGBUS, NULL, &current) != 0)
        return -1;
    if ((current.sa_flags & SA_SIGINFO) && current.sa_sigaction == fastpath_on_bus_error)
        return 0;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = fastpath_on_bus_error;
    /* NODEFER: the handler is left by a jump, which does not give the signal mask back. */
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    fastpath_previous = current;
    return sigaction(SIGBUS, &ours, NULL);
}

/* Run a kernel: NULL when it ended, else the address it could not read. */
static void *fastpath_guarded(fastpath_kernel kernel, void *arguments)
{
    sigjmp_buf here;
    sigjmp_buf *outer = fastpath_jump;
    if (sigsetjmp(here, 0) != 0) {
        fastpath_jump = outer;
        return fastpath_fault;
    }
    fastpath_jump = &here;
    kernel(arguments);
    fastpath_jump = outer;
    return NULL;
}

#endif
