"""Policies for streams with seasons."""
