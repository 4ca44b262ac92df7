"""Parquet files: columns of scalars, structs and lists of numbers, converted into fixed-width rows of a shard."""

from modyn_dagster.ingestion.formats.parquet.parquet_file import Parquet, encode_table

__all__ = ["Parquet", "encode_table"]
