"""Pipelines over a dataset that was widened: the same decisions and models as if early files had held the column."""

from typing import Any

import yaml

from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.training.models.layout import Layout
from tests.pipeline.measuring import drift
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount, batch_text, drop, write_pipeline

#: Days whose files lack the column ``z``.
EARLY = 2
DAYS = 5
HAND = "hand"


def with_z(day: int, fill: str | None = None) -> str:
    """The file of a day with a third column, which has one value or the product of the others."""
    header, *rows = batch_text(day).splitlines()
    values = [fill or f"{float(row.split(',')[1]) * float(row.split(',')[2]):.6f}" for row in rows]
    return "\n".join([f"{header},z", *(f"{row},{value}" for row, value in zip(rows, values, strict=True)), ""])


def both_datasets(world: World) -> None:
    """Add the dataset whose early files were filled by hand, and a copy of each pipeline over it."""
    dataset = yaml.safe_load((world.folder / "datasets" / f"{DATASET}.yaml").read_text())
    (world.folder / HAND / "data").mkdir(parents=True)
    by_hand = dataset | {"name": HAND, "root": f"../{HAND}/data"}
    (world.folder / "datasets" / f"{HAND}.yaml").write_text(yaml.safe_dump(by_hand))
    for path in (world.folder / "pipelines").glob("*.yaml"):
        content = yaml.safe_load(path.read_text())
        write_pipeline(world.folder, content | {"name": f"{content['name']}_{HAND}", "dataset": HAND})
    world.reload()


def widen(world: World) -> None:
    """Give the dataset its new column."""
    path = world.folder / "datasets" / f"{DATASET}.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"absent": {"z": {"fill": 0.25}}}))
    world.reload()


def deliver(world: World, day: int) -> None:
    """Deliver a day to both datasets."""
    drop(world.folder, f"day_{day}", batch_text(day) if day < EARLY else with_z(day))
    drop(world.folder / HAND, f"day_{day}", with_z(day, "0.25" if day < EARLY else None))
    for name in (DATASET, HAND):
        spec = world.platform.project.datasets[name]
        import_history(world.platform.engine, world.platform.home, spec, world.platform.project.root_of(name))


def pipelines() -> list[Content]:
    """One trains on keys from Postgres and a named column, one on all numeric columns, after drift of their values."""
    named = amount(every=40, selection={"backend": "postgres", "limit": 50})
    drifting = drift("by_drift", of="columns", every=20, decision={"rule": "threshold", "value": 0.0})
    return [named | {"training": named["training"] | {"features": ["x", "z"]}}, drifting]


#: Columns that early files lack, by the rule of the dataset: a number to impute and one to encode.
LATE: dict[str, dict[str, Any]] = {"size": {"fill": 0}, "shop": {"fill": 0, "dtype": "int64"}, "town": {"fill": "unknown"}}
ENCODED = {
    "features": ["x", *LATE],
    "encode": {"shop": {"kind": "one_hot", "max_values": 8}, "town": {"kind": "embedding", "max_values": 8, "dimension": 2}},
    "impute": {"size": {"by": "mean", "indicator": True}},
    "use_previous_model": True,
}


def with_shops(day: int, *, filled: bool) -> str:
    """The file of a day with sizes, some of them missing, shops and towns; in files filled by hand all have the fill."""
    header, *rows = batch_text(day).splitlines()
    # Written as its column is read: a size is no whole number.
    fill = ",".join("0.0" if name == "size" else str(rule["fill"]) for name, rule in LATE.items())
    more = [fill if filled else f"{'' if i % 5 == 0 else i},{3 + i % (day + 1)},t{i % day}" for i in range(len(rows))]
    return "\n".join([",".join([header, *LATE]), *(f"{row},{each}" for row, each in zip(rows, more, strict=True)), ""])


def test_columns_that_appear_later_are_encoded_and_imputed_as_those_of_files_filled_by_hand(world_of):
    content = amount(every=40)
    content["training"] |= ENCODED
    world = world_of(content)
    both_datasets(world)
    for day in range(EARLY + 1):
        early = day < EARLY
        drop(world.folder, f"day_{day}", batch_text(day) if early else with_shops(day, filled=False))
        drop(world.folder / HAND, f"day_{day}", with_shops(day, filled=early))
    for name, more in ((DATASET, {"absent": LATE}), (HAND, {"absent": {"shop": LATE["shop"]}})):
        path = world.folder / "datasets" / f"{name}.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | more))
    world.reload()
    for name in (DATASET, HAND):
        spec = world.platform.project.datasets[name]
        import_history(world.platform.engine, world.platform.home, spec, world.platform.project.root_of(name))
    for name in ("by_amount", f"by_amount_{HAND}"):
        world.replay(name)
    run, by_hand = (world.run(name, "replay") for name in ("by_amount", f"by_amount_{HAND}"))
    assert world.outcome(run) == world.outcome(by_hand)
    with world.platform.transaction() as conn:
        layouts = [Layout.from_json(row.architecture["features"]) for row in list_models(conn, run.id)]
    # The zero of early files is one more shop, and "unknown" one more town.
    assert [[one.n_values for one in layout.encodings if one.n_values] for layout in layouts] == [[1, 1], [1, 1], [4, 3]]


def test_live_and_replay_equal_those_of_files_filled_by_hand(world_of):
    world = world_of(*pipelines())
    both_datasets(world)
    for day in range(EARLY):
        deliver(world, day)
    widen(world)
    for day in range(EARLY, DAYS):
        deliver(world, day)
    named, drifting = (content["name"] for content in pipelines())
    for name in (named, f"{named}_{HAND}"):
        world.live_until_idle(name)
    for name in (drifting, f"{drifting}_{HAND}"):
        world.replay(name, [f"day_{day}" for day in range(DAYS)])
    for name, mode in ((named, "live"), (drifting, "replay")):
        run, by_hand = world.run(name, mode), world.run(f"{name}_{HAND}", mode)
        assert len(world.outcome(run)["models"]) >= 2
        assert world.outcome(run) == world.outcome(by_hand)
        assert world.decisions(run) == world.decisions(by_hand)
