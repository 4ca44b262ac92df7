"""Label files drawn at random, and the facts of a run that no label may change that arrives after them."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from modyn_dagster.catalog.labels.label_files import label_file
from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.keys import key_of, ordinal_of
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from tests.pipeline.labels.pipelines import POLICIES, SELECTIONS
from tests.pipeline.late_labels import Label, add_labels
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, ROWS
from tests.variants import represented

#: Batches of a stream, and the distance of their arrivals: between two of them label batches may arrive.
DAYS = 5
GAP = 2
#: Batch after which nothing else is known.
EVERYTHING = DAYS
#: After every batch some labels may still come.
LAST_ARRIVAL = GAP * DAYS + 3
#: Batches up to which all facts of a run are known.
EVERYTHING = DAYS
SPLIT = {"train": 0.7, "calibrate": 0.3}


def every_variant(*shown: str, without: Sequence[str] = ()) -> pytest.MarkDecorator:
    """All policies and strategies but some: some in `make test`, the others in the soak suite."""
    variants = [variant for variant in (*POLICIES, *SELECTIONS) if variant not in without]
    return represented("variant", variants, "labels", *shown)


def drawn_labels(seed: int, after: int = -1) -> list[Label]:
    """Labels and corrections that arrive after a position, late or at once; some samples never get one."""
    rng, labels = np.random.default_rng([seed, after + 1]), list[Label]()
    for number in range(DAYS * ROWS):
        arrived = number // ROWS * GAP
        for known_at in rng.permutation(rng.choice([0, 1, 1, 1, 2])).tolist():
            arrival = arrived if rng.random() < 0.3 else int(rng.integers(arrived, LAST_ARRIVAL))
            key = key_of(number // ROWS, number % ROWS)
            labels.append(Label(key, int(rng.integers(0, 2)), arrival, known_at))
    return [label for label in labels if label.arrival > after]


@dataclass(frozen=True)
class Delivery:
    """Label files in the order in which they are registered; each holds labels of one arrival."""

    files: Sequence[Sequence[Label]]

    @classmethod
    def of(cls, labels: Sequence[Label], seed: int) -> "Delivery":
        """Each arrival cut into one to three files; files and rows in any order."""
        rng, files = np.random.default_rng(seed), list[list[Label]]()
        for arrival in sorted({label.arrival for label in labels}):
            rows = [label for label in labels if label.arrival == arrival]
            parts = rng.integers(0, rng.integers(1, 4), len(rows))
            order = rng.permutation(len(rows)).tolist()
            files += [[rows[i] for i in order if parts[i] == part] for part in np.unique(parts)]
        return cls([files[i] for i in rng.permutation(len(files)).tolist()])

    def __call__(self, world: World) -> None:
        """Let a world have these label files and no others."""
        with world.platform.transaction() as conn:
            conn.execute(sa.delete(label_file))
        for file in self.files:
            add_labels(world, file)
        world.reload()


def killed_replay(world: World, pipeline: str, name: str, after: int) -> RunRow:
    """A replay that ends after some results without a word, and is started again."""
    with closing(_events(world, pipeline, name)) as events:
        for _ in zip(range(after), events, strict=False):
            pass
    return replayed(world, pipeline, name)


def _events(world: World, pipeline: str, name: str) -> Generator[object]:
    yield from replay(world.platform, ReplayRequest(pipeline, world.keys(), "dagster-run", name=name))


def replayed(world: World, pipeline: str, name: str) -> RunRow:
    """A replay from beginning to end."""
    world.replay(pipeline, name=name)
    return world.run_named(pipeline, name)


def known_by(world: World, run: RunRow, until: int) -> dict[str, Any]:
    """Facts of a run up to a batch: decisions, training sets, states of strategies, models, and scores as known.

    A score belongs to them when its interval and its model's trigger were closed by then.
    """
    outcome = world.outcome(run)
    with world.platform.transaction() as conn:
        triggers = [each for each in world.triggers(run.id) if ordinal_of(each.point) <= until]
        sets = [row for each in triggers if (row := find_training_set(conn, each.id)) is not None]
        cells = list_evaluations(conn, run.id, subsets=True)
    ordinals = {each.ordinal for each in triggers}
    ends = [batch.time_max for batch in world.platform.view(DATASET).batches[: until + 1] if batch.time_max is not None]
    return {
        "decisions": [decision for decision in world.decisions(run) if ordinal_of(decision[0]) <= until],
        "triggers": [(each.ordinal, each.key, each.point, each.reason, each.state) for each in triggers],
        "training_sets": [(row.checksum, row.n_pool, row.details.get("n_unlabelled")) for row in sets],
        "states": [row.details["state"]["checksum"] for row in sets if "state" in row.details],
        "models": [model for model in outcome["models"] if model[0] in ordinals],
        "scores": [
            (c.ordinal, c.subset, c.interval_start, c.metric, c.n_samples, c.n_labelled, c.value, c.undefined, c.low, c.high)
            for c in cells
            if c.ordinal in ordinals and c.interval_end <= max(ends)
        ],
    }


def with_samples(world: World, name: str) -> dict[str, Any]:
    """Facts of a replay that do not tell whether labels arrive later."""
    run = replayed(world, "late", name)
    facts = known_by(world, run, EVERYTHING)
    facts["training_sets"] = [(checksum, n_pool) for checksum, n_pool, _ in facts["training_sets"]]
    facts["scores"] = [(*score[:5], *score[6:]) for score in facts["scores"]]
    # Coverage is told where it may be less than all.
    facts["decisions"] = [decision[:7] for decision in facts["decisions"]]
    return facts
