"""Objectives of models without a label: the question that a sample poses, the loss of the answer, and what metrics read."""
