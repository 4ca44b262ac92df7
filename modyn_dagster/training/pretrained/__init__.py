"""Pretrained weights: their files, and the checks of a pipeline that begins with them."""
