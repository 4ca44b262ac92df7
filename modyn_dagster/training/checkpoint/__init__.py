"""Checkpoints: the state from which a killed training continues with the same bits."""
