"""Work beyond one process: a pool of workers for independent calls, and a group of ranks that work together."""
