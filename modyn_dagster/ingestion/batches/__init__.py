"""Batches: the files of a batch are read into pieces, put in order, written as index and shard, and committed."""
