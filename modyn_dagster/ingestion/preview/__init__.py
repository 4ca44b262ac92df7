"""First rows of a dataset's files, before anything is registered: their columns, and every fault that ingestion would meet."""
