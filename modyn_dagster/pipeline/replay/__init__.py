"""Replay of a pipeline over a range of batches."""
