"""Format of model files: hash tree, record, headers, codecs, and reading of tensors. Independent of any store."""
