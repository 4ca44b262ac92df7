"""Registration of datasets, and of batches of samples and labels as they arrive."""
