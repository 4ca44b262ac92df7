"""Files and tables of a store: index, deletions, training set, mapped files, and the rows that kernels read of them."""
