"""Threads and their memory: shared workers, prefetching, and rings of reusable slabs."""
