"""Deletion of samples: choosing keys, lists of deleted positions, and purging bytes for good."""
