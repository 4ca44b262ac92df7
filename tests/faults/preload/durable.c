/* Shadow of what survives a power cut: contents of files as of their last sync, names in folders as of theirs.

   A file of the shadow is named by inode and time of birth, as the numbers of removed files are given again. For a folder it has
   a line per name: kind (d or f), permissions in octal, identity, name. */

#include "plan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int identify(int folder, const char *name, char *identity, struct statx *about)
{
    int flags = AT_SYMLINK_NOFOLLOW | (*name ? 0 : AT_EMPTY_PATH);
    if (syscall(SYS_statx, folder, name, flags, STATX_BASIC_STATS | STATX_BTIME, about) != 0)
        return -1;
    sprintf(identity, "%llu-%lld-%u", (unsigned long long)about->stx_ino, (long long)about->stx_btime.tv_sec,
            about->stx_btime.tv_nsec);
    return 0;
}

static int write_all(int to, const char *data, size_t size)
{
    while (size) {
        ssize_t n = syscall(SYS_write, to, data, size);
        if (n <= 0)
            return -1;
        data += n, size -= (size_t)n;
    }
    return 0;
}

static int copy_content(int from, int to)
{
    char data[1 << 16];
    ssize_t n;
    while ((n = syscall(SYS_read, from, data, sizeof data)) > 0)
        if (write_all(to, data, (size_t)n) != 0)
            return -1;
    return (int)n;
}

/* Takes the descriptor over. */
static int copy_names(int from, int to)
{
    DIR *folder = fdopendir(from);
    if (!folder)
        return -1;
    struct dirent *entry;
    struct statx about;
    char identity[96], line[512];
    int result = 0;
    while (result == 0 && (entry = readdir(folder)) != NULL) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || identify(from, entry->d_name, identity, &about) != 0)
            continue;
        char kind = S_ISDIR(about.stx_mode) ? 'd' : 'f';
        int n = snprintf(line, sizeof line, "%c %o %s %s\n", kind, about.stx_mode & 07777, identity, entry->d_name);
        result = write_all(to, line, (size_t)n);
    }
    closedir(folder);
    return result;
}

void remember(int descriptor)
{
    char identity[96], link[64], path[LONGEST_PATH + 128], unfinished[LONGEST_PATH + 160];
    struct statx about;
    int before = errno;
    if (!*plan->shadow || identify(descriptor, "", identity, &about) != 0)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    snprintf(path, sizeof path, "%s/%s", plan->shadow, identity);
    snprintf(unfinished, sizeof unfinished, "%s.%ld", path, syscall(SYS_gettid));
    int from = (int)syscall(SYS_openat, AT_FDCWD, link, O_RDONLY | O_CLOEXEC, 0);
    int to = (int)syscall(SYS_openat, AT_FDCWD, unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int is_folder = S_ISDIR(about.stx_mode);
    int copied = from >= 0 && to >= 0 ? (is_folder ? copy_names(from, to) : copy_content(from, to)) : -1;
    if (copied == 0)
        syscall(SYS_renameat, AT_FDCWD, unfinished, AT_FDCWD, path);
    if (from >= 0 && !is_folder)
        syscall(SYS_close, from);
    if (to >= 0)
        syscall(SYS_close, to);
    errno = before;
}

/* Note that a file or folder, as it is, survives; its identity goes to `identity` (96 bytes). Returns 0, or -1. */
int faults_remember(const char *path, char *identity)
{
    struct statx about;
    int descriptor = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (descriptor < 0)
        return -1;
    remember(descriptor);
    int result = identify(descriptor, "", identity, &about);
    syscall(SYS_close, descriptor);
    return result;
}
