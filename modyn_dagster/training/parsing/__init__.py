"""Bytes of samples to arrays: functions of a project, per batch or per sample, and images.

``parsing.Parsing`` is the way in. Nothing is imported here: a parser's process needs but a part of this package.
"""
