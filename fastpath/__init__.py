"""Compiled inner loops: byte ranges out of mapped files, rows into Postgres' binary COPY format.

Knows no Dagster, no torch and no Postgres client. The functions here validate and allocate in Python; the kernels beside
them run without the GIL and trust their input.
"""

from fastpath.copy import COPY_HEADER, COPY_TRAILER, encode_rows
from fastpath.gather import gather_into, gather_ranges

__all__ = ["COPY_HEADER", "COPY_TRAILER", "encode_rows", "gather_into", "gather_ranges"]
