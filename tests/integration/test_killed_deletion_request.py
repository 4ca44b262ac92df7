"""A deletion request killed at any of its steps and executed again ends the same: sets, models, scores, files, document."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast, get_args

import numpy as np
import pytest

from modyn_dagster.catalog import runs
from modyn_dagster.catalog.removal.deletion_requests import get_request
from modyn_dagster.pipeline.operate.deletion.document import Mode, Selection
from modyn_dagster.pipeline.operate.deletion.execute import begin_request
from modyn_dagster.pipeline.operate.deletion.plan import Wish, plan_request
from tests.conftest import RunningServer
from tests.integration.harness.deployment import deployed
from tests.integration.harness.fork_server import ForkServer
from tests.integration.harness.kill_points import Point, points_of
from tests.integration.harness.kill_world import World
from tests.projects.tiny import DATASET, amount, batch_text, drop

CHUNKS: Final = 3
SOAK: Final = pytest.mark.soak("kills-ingestion")
GONE: Final = np.array([(1 << 32) + position for position in range(0, 40, 2)], np.uint64)
#: Facts of the document that differ between two executions.
_TIMES: Final = {"finished_at", "took", "salt", "keys", "requested_at", "since", "until"}
#: Files of a home that a deletion request is about.
_FOLDERS: Final = ("training_sets", "predictions", "models", "optimizers", "checkpoints", "ahead", "batches")

End = tuple[Any, ...]


def timeless(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: timeless(value) for name, value in content.items() if name not in _TIMES}
    return [timeless(value) for value in content] if isinstance(content, list) else content


def end_of(world: World, request: int, pipeline: str = "chained", mode: runs.Mode = "replay") -> End:
    ending = world.ending(pipeline, mode)
    home = world.settings.home
    files = sorted(str(path.relative_to(home)) for folder in _FOLDERS for path in (home / folder).rglob("*") if path.is_file())
    with world.deployment.platform.transaction() as conn:
        row = get_request(conn, request)
    # The ledger also has what killed attempts had committed.
    rows = {table: n for table, n in ending.rows.items() if table != "stage_timing"}
    # Temporary files of killed writers are harmless, and so is a version of a deleted list that nobody names.
    shown = [file for file in files if not file.endswith(".deleted") and not Path(file).name.startswith(".")]
    numbers = [action["anew"] for action in row.document["actions"]]
    files_and_facts = nameless(shown, numbers), nameless(timeless(row.document), numbers)
    return ending.outcome, ending.predictions, rows, row.state, *files_and_facts


def nameless(content: Any, numbers: Sequence[int | None]) -> str:
    """Content without the numbers of runs that were begun anew: a transaction that was killed has used up one."""
    text = repr(content)
    for number in numbers:
        if number is not None:
            text = re.sub(rf"\b({number:06d}|run {number})\b|'anew': {number}\b", "anew", text)
    return text


@pytest.fixture(scope="module", params=get_args(Mode))
def mode(request: pytest.FixtureRequest) -> Mode:
    """Mode of the decisions; of the second, a replay is begun anew and walked."""
    return cast("Mode", request.param)


@pytest.fixture(scope="module")
def world(
    postgres_server: RunningServer, forks: ForkServer, tmp_path_factory: pytest.TempPathFactory, mode: Mode
) -> Iterator[World]:
    content = amount("chained", every=40)
    content["training"] |= {"use_previous_model": True, "carry_optimizer": True}
    split = {"train": 0.7, "evaluate": 0.3}
    with deployed(postgres_server, tmp_path_factory.mktemp("deletion"), [content], split=split) as deployment:
        for day in range(4):
            drop(deployment.project, f"day_{day:02d}", batch_text(day))
        world = World(deployment, postgres_server, forks)
        world.prepare()
        assert world.import_history().error is None
        assert world.replay("chained").error is None
        yield world


@pytest.fixture(scope="module")
def request_id(world: World, mode: Mode) -> int:
    platform = world.deployment.platform
    dataset = platform.view(DATASET).row
    wish = Wish(Selection(by="keys", text="half of a day"), "a person", purge=True, mode=mode)
    return begin_request(platform, dataset, GONE, plan_request(platform, dataset, GONE, wish)).id


@pytest.fixture(scope="module")
def undisturbed(world: World, request_id: int) -> tuple[list[Point], End]:
    with world.copied("whole") as whole:
        result = whole.delete(request_id)
        assert result.error is None, result.error
        return points_of(result.passed), end_of(whole, request_id)


@SOAK
def test_an_undisturbed_request_has_many_steps_and_ends(undisturbed: tuple[list[Point], End]) -> None:
    points, (outcome, _, _, state, _, document) = undisturbed
    assert (state, {"commit", "rename"}) == ("finished", {point.kind for point in points})
    assert len(points) > 30
    assert len(outcome.models) == len(outcome.training_sets) > 1
    assert "'state': 'done'" in document


@pytest.mark.parametrize("chunk", [pytest.param(slice(n, None, CHUNKS), id=str(n), marks=SOAK) for n in range(CHUNKS)])
def test_a_killed_request_executed_again_ends_the_same(
    world: World, request_id: int, undisturbed: tuple[list[Point], End], chunk: slice
) -> None:
    points, end = undisturbed
    reached = 0
    for number, point in enumerate(points[chunk]):
        with world.copied(f"d{chunk.start}_{chunk.step}_{number}") as copy:
            killed = copy.delete(request_id, point)
            # A replay records its place in the stream by the clock, and so may have fewer commits than the undisturbed one had.
            came_there = killed.exit_code == -9
            assert came_there or (killed.exit_code == 0 and point.kind == "commit"), f"{point}: {killed.error}"
            reached += came_there
            again = copy.delete(request_id)
            assert again.error is None, f"{point}: {again.error}"
            for found, wanted in zip(end_of(copy, request_id), end, strict=True):
                assert found == wanted, str(point)
    assert 10 * reached > 9 * len(points[chunk])
