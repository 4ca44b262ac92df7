"""Storage of the files of a store: a local folder or an fsspec URL, reservations, and the tensor index."""
