"""Parsers that read a label out of the bytes of a sample: labels come from the dataset alone, with samples and later."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest
import yaml

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.catalog.results.training_sets import list_training_sets
from modyn_dagster.ingestion.history import import_history
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount, batch_text

_PARSERS: Final = "tests.pipeline.labels.parsers"
LABELS: Final = {
    "with_sample": {"kind": "class", "n_classes": 2, "from": {"source": "sidecar", "suffix": ".label"}},
    "later": {
        "kind": "class",
        "n_classes": 2,
        "arrives": "later",
        "files": {"root": "../labels", "format": {"kind": "csv"}, "batches": {"kind": "file", "pattern": "*.csv"}},
    },
}


def parsing(name: str, function: str, features: list[str] | str) -> Content:
    content = amount(name, every=30, selection={"window": "all"})
    content["training"] |= {"parser": f"{_PARSERS}:{function}", "features": features}
    return content


PIPELINES: Final = (
    parsing("inputs", "numbers", "numeric"),
    parsing("chosen", "numbers_and_label", ["x", "y"]),
    parsing("every", "numbers_and_label", "numeric"),
)


def samples(day: int) -> Iterator[tuple[str, str, int]]:
    """Name, text and true label of each sample of a day."""
    _, *rows = batch_text(day, rows=30).splitlines()
    for time, x, y, label in (row.split(",") for row in rows):
        yield f"{time[:16].replace(':', '')}.txt", f"{x},{y}", int(label)


def deliver(world: World, arrives: str, *, in_bytes: Callable[[int], int]) -> None:
    """Three days of files whose bytes have a label that need not be the true one; late labels come for two thirds of them."""
    content = {
        "name": DATASET,
        "root": "../files",
        "format": {"kind": "files", "suffixes": [".txt"]},
        "batches": {"kind": "directory"},
        "time": {"source": "file_name", "pattern": r"(?P<time>.*)\.txt", "format": "%Y-%m-%dT%H%M"},
        "id": {"source": "file_name"},
        "label": LABELS[arrives],
    }
    (world.folder / "datasets" / f"{DATASET}.yaml").write_text(yaml.safe_dump(content))
    (world.folder / "labels").mkdir()
    for day in range(3):
        folder = world.folder / "files" / f"day_{day}"
        folder.mkdir(parents=True)
        late = ["id,label,known_at"]
        for number, (name, text, label) in enumerate(samples(day)):
            (folder / name).write_text(f"{text},{in_bytes(label)}")
            if arrives == "with_sample":
                (folder / name).with_suffix(".label").write_text(str(label))
            elif number % 3:
                late.append(f"{name},{label},2024-01-{day + 1:02d}T20:00")
        (folder / "_READY").touch()
        if arrives == "later":
            (world.folder / "labels" / f"{day}.csv").write_text("\n".join([*late, ""]))
    world.reload()
    spec, project = world.platform.dataset(DATASET), world.platform.project
    label_root = project.label_root_of(DATASET) if spec.has_label_files else None
    import_history(world.platform.engine, world.platform.home, spec, project.root_of(DATASET), label_root=label_root)


def trained(world: World, pipeline: str) -> tuple[list[int], list[str], list[str]]:
    """Number of samples of each training set of a replay, hashes of its models, and the inputs of the last one."""
    world.replay(pipeline)
    run = world.run(pipeline, "replay")
    with world.platform.transaction() as conn:
        sizes = [row.n_samples or 0 for row in list_training_sets(conn, run.id)]
        models = list_models(conn, run.id)
    return sizes, [model.hash for model in models], [name for name, _ in models[-1].architecture["features"]["columns"]]


@pytest.mark.parametrize("arrives", LABELS)
def test_a_label_that_a_parser_reads_from_the_bytes_is_an_input_and_the_dataset_says_what_is_learnt(
    world_of: Callable[..., World], arrives: str
) -> None:
    world = world_of(*PIPELINES)
    deliver(world, arrives, in_bytes=lambda label: 1 - label)
    is_late = arrives == "later"
    view = world.platform.view(DATASET)
    view = view.labelled_as_of(100) if is_late else view
    for day, batch in enumerate(view.batches):
        values, known = view.labels(batch)
        assert values.tolist() == [-1 if is_late and n % 3 == 0 else label for n, (*_, label) in enumerate(samples(day))]
        assert known.tolist() == (values >= 0).tolist()
    sizes, models, columns = trained(world, "inputs")
    assert sizes == ([0, 20, 40] if is_late else [30, 60, 90])
    assert columns == ["x", "y"]
    assert trained(world, "chosen") == (sizes, models, columns)
    _, others, columns = trained(world, "every")
    assert columns == ["x", "label", "y"]
    assert set(others).isdisjoint(models)
