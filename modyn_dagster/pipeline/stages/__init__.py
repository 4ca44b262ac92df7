"""Stages of a trigger: training set, model and evaluation."""
