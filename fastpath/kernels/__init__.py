"""Cython kernels. They run without the GIL and trust their input: the modules above validate it."""
