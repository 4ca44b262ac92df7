"""Threads and their memory: shared workers, prefetching, rings of reusable slabs, and resets after a fork."""
