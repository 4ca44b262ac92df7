"""Rows of batches: their columns, decoding, and what stands in for columns that a batch lacks."""
