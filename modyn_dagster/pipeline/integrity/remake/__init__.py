"""Making of damaged or missing files again: with the recorded bytes, or not at all."""
