"""What happens to a model's inputs and to labels between reading and learning.

``chain.Transforms`` is the way in for inputs, ``labels.Relabeling`` for labels. Nothing is imported here.
"""
