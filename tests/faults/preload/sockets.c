/* Calls on the sockets of the catalog, and the clock. A connection that fails once is cut: the other end sees it, too. */

#include "plan.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (!next) \
        next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int is_catalog(const struct sockaddr *address, socklen_t size)
{
    char name[sizeof(struct sockaddr_un)] = "";
    if (address->sa_family == AF_UNIX && size > sizeof(sa_family_t))
        snprintf(name, sizeof name, "%s", ((const struct sockaddr_un *)address)->sun_path);
    else if (address->sa_family == AF_INET)
        snprintf(name, sizeof name, ":%d", ntohs(((const struct sockaddr_in *)address)->sin_port));
    return *plan->peer && strncmp(name, plan->peer, strlen(plan->peer)) == 0;
}

static fate_t fate_by_socket(enum call call, int descriptor)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int before = errno;
    int known = plan && getpeername(descriptor, (struct sockaddr *)&address, &size) == 0;
    errno = before;
    fate_t fate = known && is_catalog((struct sockaddr *)&address, size) ? fate_of(call, "") : (fate_t){0, 0};
    if (fate.error)
        shutdown(descriptor, SHUT_RDWR);
    return fate;
}

int connect(int descriptor, const struct sockaddr *address, socklen_t size)
{
    NEXT(connect);
    if (plan && is_catalog(address, size)) {
        fate_t fate = fate_of(CONNECT, "");
        if (fate.error) {
            errno = fate.error;
            return -1;
        }
    }
    return next(descriptor, address, size);
}

ssize_t send(int descriptor, const void *data, size_t size, int flags)
{
    NEXT(send);
    fate_t fate = fate_by_socket(SEND, descriptor);
    if (fate.error) {
        errno = fate.error;
        return -1;
    }
    return next(descriptor, data, fate.is_short && size > 1 ? size / 2 : size, flags);
}

ssize_t recv(int descriptor, void *data, size_t size, int flags)
{
    NEXT(recv);
    fate_t fate = fate_by_socket(RECV, descriptor);
    if (fate.error) {
        errno = fate.error;
        return -1;
    }
    return next(descriptor, data, fate.is_short && size > 1 ? size / 2 : size, flags);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    NEXT(clock_gettime);
    int result = next(clock, now);
    if (plan && clock == CLOCK_REALTIME) {
        fate_of(CLOCK, "");
        now->tv_sec += __atomic_load_n(&plan->clock_offset, __ATOMIC_SEQ_CST);
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    NEXT(gettimeofday);
    int result = next(now, zone);
    if (plan)
        now->tv_sec += __atomic_load_n(&plan->clock_offset, __ATOMIC_SEQ_CST);
    return result;
}

time_t time(time_t *result)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
