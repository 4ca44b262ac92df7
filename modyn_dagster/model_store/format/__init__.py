"""The file of a model: hash tree, record, header, codecs, and the reading of tensors. Knows no store."""
