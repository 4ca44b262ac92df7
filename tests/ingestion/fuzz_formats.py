"""Child process: mutated input files, read as a batch of a new dataset and as one of a dataset with columns."""

import resource
import sys
from pathlib import Path

from modyn_dagster.catalog.datasets import Column, DatasetRow
from modyn_dagster.data.rows.row_decoding import CsvDecoder, JsonlDecoder, RowDecoder
from modyn_dagster.errors import DataError, UnexpectedFault
from modyn_dagster.ingestion.batches.assemble import assemble
from modyn_dagster.ingestion.batches.members import Members
from modyn_dagster.ingestion.batches.read_batch import BatchReader, ReadBatch
from modyn_dagster.ingestion.formats import row_format
from modyn_dagster.ingestion.sources.local import LocalSource
from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.formats.loading import loaded, reread
from tests.ingestion.mutating import mutated
from tests.ingestion.poison import FORMATS
from tests.ingestion.world import dataset_spec

#: Address space beyond what the process has before it begins: no file of the mutations needs more.
_ROOM = 3 << 30
_NAME = "f"


def read(spec: DatasetSpec, folder: Path, columns: tuple[Column, ...] | None) -> ReadBatch | None:
    """The file as a batch; None if it was refused as a file of bad data."""
    dataset = DatasetRow(1, "d", {}, columns, (), 0)
    try:
        batch = BatchReader(LocalSource(folder), spec).read(dataset, Members([_NAME]))
        assembled = assemble(batch.pieces, batch.columns)
        n_bytes = sum(len(part) for part in assembled.shard or ())
    except UnexpectedFault:
        raise
    except DataError:
        return None
    assert len(assembled.times) == len(assembled.offsets) == len(assembled.lengths)
    assert n_bytes == 0 or (assembled.offsets + assembled.lengths <= n_bytes).all()
    return batch


def compare_rows(spec: DatasetSpec, content: bytes, columns: tuple[Column, ...]) -> None:
    """Rows that readers parse alone, in another order, are those of the file as a whole."""
    if spec.format.kind not in ("csv", "jsonl"):
        return
    decoder: RowDecoder = CsvDecoder(",") if spec.format.kind == "csv" else JsonlDecoder()
    opened = row_format(spec.format).open(loaded(content))
    whole = {name: values.to_pylist() for name, values in opened.convert(columns, {c.name for c in columns}).items()}
    backwards = range(len(opened) - 1, -1, -1)
    for rows in ([*backwards], *([row] for row in backwards)):
        part = reread(decoder, content, opened, columns, rows)
        for name, values in part.items():
            # As texts: NaN equals NaN there, and -0.0 another than 0.0.
            assert repr(values) == repr([whole[name][row] for row in rows]), name


def fuzz(kind: str, folder: Path, seed: int, n: int) -> int:
    """Number of files that were read."""
    spec = dataset_spec(**{"attributes": ["s"], **FORMATS[kind]})
    accepted = 0
    columns: tuple[Column, ...] | None = None
    for done, content in mutated(kind, seed, n):
        (folder / _NAME).write_bytes(content)
        try:
            batch = read(spec, folder, None)
            if batch is not None:
                accepted += 1
                compare_rows(spec, content, batch.columns)
                columns = columns or batch.columns
            if columns is not None:
                read(spec, folder, columns)
        except BaseException as error:
            error.add_note(f"{done}: the file is {folder / _NAME}")
            raise
    return accepted


if __name__ == "__main__":
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, used + _ROOM))
    sys.stdout.write(str(fuzz(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))))
