"""An import of samples and labels that is killed at any of its steps, and started again, ends the same."""

import multiprocessing
import signal
from itertools import count
from typing import Any

import pytest

from modyn_dagster.ingestion.history import import_history
from modyn_dagster.spec.dataset import DatasetSpec
from tests.ingestion.killing import DONE, work_until
from tests.ingestion.labels.label_world import LabelWorld, later_spec, samples

#: Steps of a short run: around the label file and the commit of each kind of batch.
FEW = (6, 10, 16)


def import_in_a_process(world: LabelWorld, spec: DatasetSpec, step: int) -> int | None:
    # Connections that a fork takes along would be used by two processes.
    world.engine.dispose()

    def work(engine: Any) -> object:
        return import_history(engine, world.home, spec, str(world.root), label_root=world.label_root)

    process = multiprocessing.get_context("fork").Process(target=work_until, args=(step, world.engine.url, work))
    process.start()
    process.join()
    return process.exitcode


def outcome(world: LabelWorld, spec: DatasetSpec) -> tuple[Any, ...]:
    """Labels, ids that wait, counts of batches and class names, without the name of the dataset."""
    counts = [
        (b.partition_key, b.arrival, b.state, b.n_rows, b.n_known, b.n_waiting, b.findings) for b in world.label_batches(spec)
    ]
    waiting = [(row.sample_id, row.n_labels) for row in world.waiting(spec)]
    files = {path.replace(spec.name, ""): content for path, content in world.files().items() if f"/{spec.name}/" in path}
    return (
        world.known(spec),
        waiting,
        counts,
        [batch.arrival for batch in world.batches(spec)],
        world.dataset(spec).class_names,
        files,
    )


def write_history(world: LabelWorld) -> None:
    for day in (1, 2, 3):
        world.write(f"{day}.csv", samples(day, [10 * day, 10 * day + 1]))
    world.write_labels("a.csv", "10,cat,2024-01-01\n30,dog,2024-01-01T00:30:00\n99,cat,2024-01-01\n")
    world.write_labels("b.csv", "20,dog,2024-01-02\n10,dog,2024-01-02\n")


def killed_at(world: LabelWorld, step: int, expected: tuple[Any, ...]) -> bool:
    """Kill an import at a step and compare the end of the next; False once there is no such step."""
    spec = later_spec(name=f"killed_{step}")
    code = import_in_a_process(world, spec, step)
    if code != DONE:
        assert code == -signal.SIGKILL
        world.import_all(spec)
        assert outcome(world, spec) == expected, f"killed at step {step}"
    return code != DONE


def undisturbed(world: LabelWorld) -> tuple[Any, ...]:
    write_history(world)
    spec = later_spec(name="undisturbed")
    assert import_in_a_process(world, spec, 0) == DONE
    known, waiting, *_ = expected = outcome(world, spec)
    assert len(known) == 4
    assert waiting == [("99", 1)]
    return expected


@pytest.mark.process
def test_an_import_of_labels_that_is_killed_and_started_again_ends_the_same(world: LabelWorld) -> None:
    expected = undisturbed(world)
    assert all(killed_at(world, step, expected) for step in FEW)


@pytest.mark.soak("kills-ingestion")
def test_an_import_of_labels_that_is_killed_at_any_step_ends_the_same(world: LabelWorld) -> None:
    expected = undisturbed(world)
    steps = next(step for step in count(1) if not killed_at(world, step, expected)) - 1
    assert steps > 16
