"""Transforms of a model's inputs and labels between reading and learning.

``chain.Transforms`` is the way in for inputs, ``labels.Relabeling`` for labels. Nothing is imported here.
"""
