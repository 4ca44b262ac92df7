"""Reproducible runs: seeds, random numbers by key, deterministic algorithms, and the environment that a result came from."""
