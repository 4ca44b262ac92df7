/* The plan of this process, and the fate of a call by its rules. */

#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

plan_t *plan;

/* Follow the plan in a file from now on; NULL ends it. Returns 0, or an errno. */
int faults_begin(const char *path)
{
    plan_t *mapped = NULL;
    if (path != NULL) {
        int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
        if (descriptor < 0)
            return errno;
        mapped = mmap(NULL, sizeof(plan_t), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        int error = errno;
        syscall(SYS_close, descriptor);
        if (mapped == MAP_FAILED)
            return error;
    }
    plan = mapped;
    return 0;
}

__attribute__((constructor)) static void begin_by_environment(void)
{
    const char *path = getenv("MODYN_TESTS_FAULTS");
    if (path != NULL && faults_begin(path) != 0)
        abort();
}

static void strike(const rule_t *rule, fate_t *fate)
{
    switch (rule->action) {
    case FAIL:
        fate->error = (int)rule->value;
        break;
    case SHORT:
        fate->is_short = 1;
        break;
    case DELAY: {
        struct timespec pause = {rule->value / 1000000, rule->value % 1000000 * 1000};
        syscall(SYS_nanosleep, &pause, NULL);
        break;
    }
    case KILL:
        syscall(SYS_kill, getpid(), SIGKILL);
        break;
    case JUMP:
        __atomic_fetch_add(&plan->clock_offset, rule->value, __ATOMIC_SEQ_CST);
        break;
    }
}

fate_t fate_of(enum call call, const char *below)
{
    fate_t fate = {0, 0};
    int before = errno;
    for (uint32_t i = 0; i < plan->n_rules; i++) {
        rule_t *rule = &plan->rules[i];
        if (!(rule->calls >> call & 1) || (*below && fnmatch(rule->pattern, below, 0) != 0))
            continue;
        int64_t number = __atomic_fetch_add(&rule->seen, 1, __ATOMIC_SEQ_CST);
        if (rule->action == COUNT || number < rule->after || (rule->times && number >= rule->after + rule->times))
            continue;
        __atomic_fetch_add(&rule->hits, 1, __ATOMIC_SEQ_CST);
        strike(rule, &fate);
    }
    errno = before;
    return fate;
}

const char *below_root(int folder, const char *path, char *buffer)
{
    size_t root = strlen(plan->root);
    if (path == NULL || root == 0)
        return NULL;
    const char *whole = path;
    if (*path != '/') {
        char link[64];
        if (folder == AT_FDCWD)
            strcpy(link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
        ssize_t n = syscall(SYS_readlink, link, buffer, LONGEST_PATH);
        if (n < 0 || n >= LONGEST_PATH || strlen(path) >= LONGEST_PATH - 1)
            return NULL;
        buffer[n] = '/';
        strcpy(buffer + n + 1, path);
        whole = buffer;
    }
    if (strncmp(whole, plan->root, root) != 0)
        return NULL;
    /* The root itself is ".". */
    return whole[root] == '/' ? whole + root + 1 : whole[root] == 0 ? "." : NULL;
}

const char *below_root_of(int descriptor, char *buffer)
{
    char link[64];
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t n = syscall(SYS_readlink, link, buffer, LONGEST_PATH - 1);
    errno = before;
    if (n <= 0 || *buffer != '/')
        return NULL;
    buffer[n] = 0;
    return below_root(AT_FDCWD, buffer, buffer);
}
