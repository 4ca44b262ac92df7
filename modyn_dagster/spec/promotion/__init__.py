"""Specs of promotion: rules by which a newer model becomes the champion of its pipeline."""
