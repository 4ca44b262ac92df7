/* Calls on files. Each asks for its fate, and goes on to the C library unless it is struck. */

#include "plan.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (!next) \
        next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static fate_t fate_by_path(enum call call, int folder, const char *path)
{
    char buffer[2 * LONGEST_PATH];
    int before = errno;
    const char *below = plan ? below_root(folder, path, buffer) : NULL;
    errno = before;
    return below ? fate_of(call, below) : (fate_t){0, 0};
}

static fate_t fate_by_descriptor(enum call call, int descriptor)
{
    char buffer[2 * LONGEST_PATH];
    const char *below = plan ? below_root_of(descriptor, buffer) : NULL;
    return below ? fate_of(call, below) : (fate_t){0, 0};
}

#define FAIL_BY(fate) \
    do { \
        fate_t chosen = (fate); \
        if (chosen.error) { \
            errno = chosen.error; \
            return -1; \
        } \
    } while (0)

#define OPENER(name) \
    int name(const char *path, int flags, ...) \
    { \
        NEXT(name); \
        va_list arguments; \
        va_start(arguments, flags); \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments); \
        FAIL_BY(fate_by_path(OPEN, AT_FDCWD, path)); \
        return next(path, flags, mode); \
    }
OPENER(open)
OPENER(open64)

#define OPENER_AT(name) \
    int name(int folder, const char *path, int flags, ...) \
    { \
        NEXT(name); \
        va_list arguments; \
        va_start(arguments, flags); \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments); \
        FAIL_BY(fate_by_path(OPEN, folder, path)); \
        return next(folder, path, flags, mode); \
    }
OPENER_AT(openat)
OPENER_AT(openat64)

#define OPENER_OF_STREAM(name) \
    FILE *name(const char *path, const char *mode) \
    { \
        NEXT(name); \
        fate_t fate = fate_by_path(OPEN, AT_FDCWD, path); \
        if (fate.error) { \
            errno = fate.error; \
            return NULL; \
        } \
        return next(path, mode); \
    }
OPENER_OF_STREAM(fopen)
OPENER_OF_STREAM(fopen64)

/* A short read or write transfers half of what was asked for, but never nothing: that would be the end of the file. */
#define HALF(size, fate) ((fate).is_short && (size) > 1 ? (size) / 2 : (size))

#define TRANSFER(call, name, parameters, arguments, ...) \
    ssize_t name parameters \
    { \
        NEXT(name); \
        fate_t fate = fate_by_descriptor(call, descriptor); \
        FAIL_BY(fate); \
        __VA_ARGS__; \
        return next arguments; \
    }
TRANSFER(READ, read, (int descriptor, void *data, size_t size), (descriptor, data, size), size = HALF(size, fate))
TRANSFER(READ, pread, (int descriptor, void *data, size_t size, off_t at), (descriptor, data, size, at), size = HALF(size, fate))
TRANSFER(READ, pread64, (int descriptor, void *data, size_t size, off64_t at), (descriptor, data, size, at), size = HALF(size, fate))
TRANSFER(READ, readv, (int descriptor, const struct iovec *parts, int n), (descriptor, parts, n), n = HALF(n, fate))
TRANSFER(READ, preadv, (int descriptor, const struct iovec *parts, int n, off_t at), (descriptor, parts, n, at), n = HALF(n, fate))
TRANSFER(READ, preadv64, (int descriptor, const struct iovec *parts, int n, off64_t at), (descriptor, parts, n, at), n = HALF(n, fate))
TRANSFER(WRITE, write, (int descriptor, const void *data, size_t size), (descriptor, data, size), size = HALF(size, fate))
TRANSFER(WRITE, pwrite, (int descriptor, const void *data, size_t size, off_t at), (descriptor, data, size, at), size = HALF(size, fate))
TRANSFER(WRITE, pwrite64, (int descriptor, const void *data, size_t size, off64_t at), (descriptor, data, size, at), size = HALF(size, fate))
TRANSFER(WRITE, writev, (int descriptor, const struct iovec *parts, int n), (descriptor, parts, n), n = HALF(n, fate))
TRANSFER(WRITE, sendfile, (int descriptor, int from, off_t *at, size_t size), (descriptor, from, at, size), size = HALF(size, fate))
TRANSFER(WRITE, sendfile64, (int descriptor, int from, off64_t *at, size_t size), (descriptor, from, at, size), size = HALF(size, fate))
TRANSFER(WRITE, copy_file_range, (int from, off64_t *at, int descriptor, off64_t *to, size_t size, unsigned flags),
         (from, at, descriptor, to, size, flags), size = HALF(size, fate))

#define TRUNCATER(name, parameters, arguments) \
    int name parameters \
    { \
        NEXT(name); \
        FAIL_BY(fate_by_descriptor(TRUNCATE, descriptor)); \
        return next arguments; \
    }
TRUNCATER(ftruncate, (int descriptor, off_t size), (descriptor, size))
TRUNCATER(ftruncate64, (int descriptor, off64_t size), (descriptor, size))
TRUNCATER(fallocate, (int descriptor, int mode, off_t at, off_t size), (descriptor, mode, at, size))
TRUNCATER(fallocate64, (int descriptor, int mode, off64_t at, off64_t size), (descriptor, mode, at, size))

/* Nobody waits for the disk: what would survive a power cut is in the shadow. */
#define SYNCER(name) \
    int name(int descriptor) \
    { \
        NEXT(name); \
        char buffer[2 * LONGEST_PATH]; \
        if (!plan || !below_root_of(descriptor, buffer)) \
            return next(descriptor); \
        FAIL_BY(fate_by_descriptor(FSYNC, descriptor)); \
        remember(descriptor); \
        return 0; \
    }
SYNCER(fsync)
SYNCER(fdatasync)

int rename(const char *from, const char *to)
{
    NEXT(rename);
    FAIL_BY(fate_by_path(RENAME, AT_FDCWD, to));
    return next(from, to);
}

int renameat(int folder, const char *from, int other, const char *to)
{
    NEXT(renameat);
    FAIL_BY(fate_by_path(RENAME, other, to));
    return next(folder, from, other, to);
}

int link(const char *from, const char *to)
{
    NEXT(link);
    FAIL_BY(fate_by_path(RENAME, AT_FDCWD, to));
    return next(from, to);
}

int linkat(int folder, const char *from, int other, const char *to, int flags)
{
    NEXT(linkat);
    FAIL_BY(fate_by_path(RENAME, other, to));
    return next(folder, from, other, to, flags);
}

int unlink(const char *path)
{
    NEXT(unlink);
    FAIL_BY(fate_by_path(REMOVE, AT_FDCWD, path));
    return next(path);
}

int unlinkat(int folder, const char *path, int flags)
{
    NEXT(unlinkat);
    FAIL_BY(fate_by_path(REMOVE, folder, path));
    return next(folder, path, flags);
}

int rmdir(const char *path)
{
    NEXT(rmdir);
    FAIL_BY(fate_by_path(REMOVE, AT_FDCWD, path));
    return next(path);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(mkdir);
    FAIL_BY(fate_by_path(MKDIR, AT_FDCWD, path));
    return next(path, mode);
}
