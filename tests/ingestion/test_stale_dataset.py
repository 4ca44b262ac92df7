"""Datasets read before a batch of a new layout was committed, and the batches after it: nothing is parsed by another order."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.database.engine import transaction
from modyn_dagster.data.reader import open_reader
from modyn_dagster.data.rows.layouts import layouts_of
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import CatalogError
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings
from modyn_dagster.spec.load import Project
from tests.ingestion.world import World, dataset_spec

#: Two columns of one dtype, which the files of the first batch have in this order.
SPEC = dataset_spec(absent={"y": {"fill": 0}, "z": {"fill": 0}}, batches={"kind": "file", "pattern": "*.csv"})
FIRST = "time,x,label,y,z\n2020-01-01,1,0,10,20\n"
#: The same columns in another order, and one column less.
OTHERS = {"swapped": "time,x,label,z,y\n2020-01-02,1,0,20,10\n", "narrow": "time,x,label,z\n2020-01-02,1,0,20\n"}


@contextmanager
def committed_before(engine: sa.Engine, table: str, commit: Callable[[], object]) -> Iterator[None]:
    """Let another process commit right before the first statement that reads a table."""
    pending = [commit]

    @sa.event.listens_for(engine, "before_cursor_execute")
    def _(conn: Any, cursor: Any, statement: str, *_: Any) -> None:
        if pending and f"FROM {table}" in statement:
            pending.pop()()

    yield
    assert pending == []


@pytest.mark.parametrize("other", sorted(OTHERS))
def test_a_view_knows_the_layout_of_a_batch_that_is_committed_while_it_is_read(
    world: World, settings: Settings, other: str
) -> None:
    spec = SPEC.model_copy(update={"root": str(world.root)})
    platform = Platform(settings, Project(world.root, {"d": spec}, {}))
    world.write("a.csv", FIRST)
    world.run_import(spec)

    def deliver() -> None:
        world.write("b.csv", OTHERS[other])
        world.run_import(spec)

    view: DatasetView
    with committed_before(platform.engine, "batch", deliver):
        view = platform.view("d")
    columns = view.reader.read(world.keys(spec)).columns
    platform.close()
    assert columns["y"].tolist() == [10, 10 if other == "swapped" else 0]
    assert columns["z"].tolist() == [20, 20]


def test_a_reader_by_an_older_row_knows_the_layouts_of_all_batches(world: World) -> None:
    world.write("a.csv", FIRST)
    world.run_import(SPEC)
    stale = world.dataset(SPEC)
    world.write("b.csv", OTHERS["swapped"])
    world.run_import(SPEC)
    with transaction(world.engine) as conn:
        reader = open_reader(conn, stale, SPEC, str(world.root), world.home)
    assert reader.read(world.keys(SPEC)).columns["y"].tolist() == [10, 10]


def test_a_layout_that_a_row_does_not_have_is_refused(world: World) -> None:
    for name, content in (("a", FIRST), *OTHERS.items()):
        world.write(f"{name}.csv", content)
        world.run_import(SPEC)
    row, batches = world.dataset(SPEC), world.batches(SPEC)
    assert len(layouts_of(row, batches)) == len(row.layouts) - 1 == len(OTHERS)
    for layouts in (), row.layouts[:1], row.layouts[:2]:
        with pytest.raises(CatalogError, match="read the dataset again"):
            layouts_of(replace(row, layouts=layouts), batches)
