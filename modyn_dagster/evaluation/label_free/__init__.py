"""Scores that labels would give, estimated before there are any: calibrated probabilities, expected scores, intervals."""
