/* Rows of files, the ways one would fetch them without fastpath. Compiled and called by cold_reads.py. */

#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void gather(const uint8_t *const *bases, const int32_t *file, const int64_t *offset, int64_t n, int64_t width, uint8_t *out)
{
    for (int64_t i = 0; i < n; i++)
        memcpy(out + i * width, bases[file[i]] + offset[i], (size_t)width);
}

/* 0, or -errno; -EIO for a file that ends before the row. */
int pread_rows(const int *fds, const int32_t *file, const int64_t *offset, int64_t n, int64_t width, uint8_t *out)
{
    for (int64_t i = 0; i < n; i++) {
        ssize_t got = pread(fds[file[i]], out + i * width, (size_t)width, offset[i]);
        if (got != width)
            return got < 0 ? -errno : -EIO;
    }
    return 0;
}

struct ring {
    int fd;
    unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    void *rings;
    size_t rings_bytes, sqes_bytes;
};

static int ring_open(struct ring *ring, unsigned depth)
{
    struct io_uring_params params = {0};
    ring->fd = (int)syscall(SYS_io_uring_setup, depth, &params);
    if (ring->fd < 0)
        return -errno;
    if (!(params.features & IORING_FEAT_SINGLE_MMAP)) {
        close(ring->fd);
        return -ENOSYS;
    }
    size_t sq_bytes = params.sq_off.array + params.sq_entries * sizeof(unsigned);
    size_t cq_bytes = params.cq_off.cqes + params.cq_entries * sizeof(struct io_uring_cqe);
    ring->rings_bytes = sq_bytes > cq_bytes ? sq_bytes : cq_bytes;
    ring->sqes_bytes = params.sq_entries * sizeof(struct io_uring_sqe);
    ring->rings = mmap(NULL, ring->rings_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQ_RING);
    ring->sqes = mmap(NULL, ring->sqes_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
    if (ring->rings == MAP_FAILED || ring->sqes == MAP_FAILED) {
        close(ring->fd);
        return -ENOMEM;
    }
    char *at = ring->rings;
    ring->sq_tail = (unsigned *)(at + params.sq_off.tail);
    ring->sq_mask = (unsigned *)(at + params.sq_off.ring_mask);
    ring->sq_array = (unsigned *)(at + params.sq_off.array);
    ring->cq_head = (unsigned *)(at + params.cq_off.head);
    ring->cq_tail = (unsigned *)(at + params.cq_off.tail);
    ring->cq_mask = (unsigned *)(at + params.cq_off.ring_mask);
    ring->cqes = (struct io_uring_cqe *)(at + params.cq_off.cqes);
    return 0;
}

static void ring_close(struct ring *ring)
{
    munmap(ring->sqes, ring->sqes_bytes);
    munmap(ring->rings, ring->rings_bytes);
    close(ring->fd);
}

/* One read per row, at most `depth` under way. 0, or -errno; -EIO for a file that ends before the row. */
int uring_rows(const int *fds, const int32_t *file, const int64_t *offset, int64_t n, int64_t width, uint8_t *out, unsigned depth)
{
    struct ring ring = {0};
    int failed = ring_open(&ring, depth);
    if (failed)
        return failed;
    int64_t sent = 0, done = 0;
    while (done < sent || (sent < n && !failed)) {
        unsigned tail = *ring.sq_tail, fresh = 0;
        while (!failed && sent < n && sent - done < depth) {
            unsigned slot = tail & *ring.sq_mask;
            struct io_uring_sqe *sqe = &ring.sqes[slot];
            memset(sqe, 0, sizeof *sqe);
            sqe->opcode = IORING_OP_READ;
            sqe->fd = fds[file[sent]];
            sqe->off = (uint64_t)offset[sent];
            sqe->addr = (uint64_t)(uintptr_t)(out + sent * width);
            sqe->len = (uint32_t)width;
            ring.sq_array[slot] = slot;
            tail++, fresh++, sent++;
        }
        __atomic_store_n(ring.sq_tail, tail, __ATOMIC_RELEASE);
        /* As many are under way as are allowed, so all that were filled in are taken. */
        while (syscall(SYS_io_uring_enter, ring.fd, fresh, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0) {
            if (errno != EINTR && errno != EAGAIN)
                abort(); /* reads into `out` may be under way: there is no way back */
        }
        unsigned head = *ring.cq_head;
        while (head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE)) {
            int result = ring.cqes[head & *ring.cq_mask].res;
            if (result != width)
                failed = result < 0 ? result : -EIO;
            head++, done++;
        }
        __atomic_store_n(ring.cq_head, head, __ATOMIC_RELEASE);
    }
    ring_close(&ring);
    return failed;
}
