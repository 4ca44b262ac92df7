"""Places that hold the files of a store: a local folder or a URL of fsspec, reservations, and the tensor index."""
