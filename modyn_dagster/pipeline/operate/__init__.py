"""Operation of runs: events for hooks, retention, lineage of samples."""
