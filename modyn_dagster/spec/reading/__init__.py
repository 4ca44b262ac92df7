"""Reading of specs: complaints about impossible ones, and where the code they name may come from."""
