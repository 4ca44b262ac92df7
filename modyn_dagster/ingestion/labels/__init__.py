"""Label batches: files of labels that arrive after their samples are read, matched with samples, and committed."""
