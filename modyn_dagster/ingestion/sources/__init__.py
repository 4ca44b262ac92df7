"""Sources: the files of a dataset in a local folder or behind fsspec."""
