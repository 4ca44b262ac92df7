"""Downsampling policies, one file per algorithm or pair of siblings."""
