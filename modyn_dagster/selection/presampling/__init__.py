"""Presampling: strategies that choose a training set from the window of a trigger."""
