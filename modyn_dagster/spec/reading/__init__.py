"""Reading of specs: complaints about impossible ones."""
