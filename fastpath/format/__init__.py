"""Formats on disk: indexes of batches, lists of deleted samples and training sets, and the tables of opened files."""
