"""Repair of batches whose files lack columns that the dataset got later: the bytes of their ingestion come back."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from modyn_dagster.pipeline.integrity.pacing import Pace
from modyn_dagster.pipeline.integrity.scope import Scope
from modyn_dagster.pipeline.integrity.verification import repair
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.settings import Settings
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.load import Project
from tests.ingestion.widening import (
    FILL,
    NEW_RECORD,
    OLD,
    OLD_RECORD,
    WRITERS,
    narrowed,
    record_spec,
    records,
    rows_of,
    spec_of,
)
from tests.ingestion.world import World


@dataclass(frozen=True)
class Stage:
    """Spec of the dataset at one time, and the file that is delivered then."""

    spec: DatasetSpec
    content: bytes


def text_stages(kind: str) -> list[Stage]:
    """Two columns are added one after the other; the last file lacks the first of them."""
    rules: list[list[str]] = [[], ["z"], ["z", "word"], ["z", "word"]]
    columns = [OLD, [*OLD, "z"], [*OLD, "z", "word"], [*OLD, "word"]]
    return [
        Stage(spec_of(kind, "ruled", names), WRITERS[kind](rows_of(number, 4), present))
        for number, (names, present) in enumerate(zip(rules, columns, strict=True))
    ]


def record_stages() -> list[Stage]:
    """Fields are added at once, in the middle and at the end of the records."""
    early = Stage(record_spec("ruled", OLD_RECORD, {}), narrowed(records(0, 5)).tobytes())
    return [early, Stage(record_spec("ruled", NEW_RECORD, FILL), records(1, 6).tobytes())]


@pytest.mark.parametrize(
    "stages",
    [
        *(pytest.param(partial(text_stages, kind), id=kind) for kind in sorted(WRITERS)),
        pytest.param(record_stages, id="fixed_rows"),
    ],
)
def test_files_of_batches_older_than_a_column_are_made_again(
    world: World, settings: Settings, stages: Callable[[], list[Stage]]
) -> None:
    for number, stage in enumerate(stages()):
        world.write(f"ruled_{number}", stage.content)
        assert len(world.run_import(stage.spec).ingested) == 1
    spec = stages()[-1].spec
    keys, before = world.keys(spec), world.files()
    columns = world.reader(spec).read(keys).columns
    for path in before:
        (world.home / path).unlink()
    project = Project(world.root, {spec.name: spec.model_copy(update={"root": str(world.root)})}, {})
    platform = Platform(settings, project)
    outcomes = list(repair(platform, Scope.of(platform), Pace()))
    platform.close()
    assert [outcome.reason for outcome in outcomes if not outcome.is_repaired] == []
    assert world.files() == before
    again = world.reader(spec).read(keys).columns
    for name, values in columns.items():
        np.testing.assert_array_equal(again[name], values, strict=True)
