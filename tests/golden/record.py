"""The golden record: what pipelines of every policy, strategy, downsampler and store came to, replayed and live.

``python -m tests.golden.record`` writes it, into ``tests/golden/record`` or the folder of ``--output``. With ``--compare`` it is
not written but compared, and what differs is shown by pipeline and kind; the exit code is 1 then. Names of pipelines
restrict both.
"""

import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

# Before torch is imported: threads that wait for each other take most of their time there.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import click

from modyn_dagster.catalog.embedded import EmbeddedPostgres
from tests.disk import do_not_wait_for_the_disk
from tests.golden.comparing import Subjects, difference, ours
from tests.golden.driving import PROJECT, do_not_wait_in_postgres, lived, replayed, scratch_folder, site_in
from tests.golden.environment import environment, schemas
from tests.golden.facts import Facts, facts_of_dataset, facts_of_run

RECORD: Final = Path(__file__).parent / "record"
PIPELINES: Final = tuple(sorted(path.stem for path in (PROJECT / "pipelines").glob("*.yaml")))
_COMMON: Final = "common.json"


def made(folder: Path, postgres_url: Any, pipelines: Sequence[str], prefix: str = "") -> Subjects:
    """Replay these pipelines, run them live, and return the facts of both, and of the datasets."""
    found: Subjects = {}
    for mode, work in (("replay", replayed), ("live", lived)):
        with site_in(folder, postgres_url, f"{prefix}{mode}_") as site:
            work(site, pipelines)
            for dataset in site.platform.project.datasets:
                found.setdefault(dataset, {})[mode] = facts_of_dataset(site.platform, dataset)
            for pipeline in pipelines:
                found.setdefault(pipeline, {})[mode] = facts_of_run(site.platform, pipeline, mode)
    return found


def read(folder: Path, subjects: Sequence[str]) -> Subjects:
    """Recorded facts of some pipelines and datasets."""
    found: Subjects = {}
    for name in subjects:
        content = json.loads((folder / f"{name}.json").read_text())
        replay, live = _facts(content["replay"]), _facts(content["live"])
        found[name] = {"replay": replay, "live": replay | live}
    return found


def read_common(folder: Path) -> dict[str, Any]:
    """Environment of the record, and the hashes of the JSON Schemas."""
    return dict(json.loads((folder / _COMMON).read_text()))


def write(folder: Path, subjects: Subjects, common: dict[str, Any]) -> None:
    """One file for each; of a live run only what is not as in the replay."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _COMMON).write_text(json.dumps(common, indent=1, sort_keys=True) + "\n")
    for name, modes in subjects.items():
        replay, live = modes["replay"], modes["live"]
        other = {kind: rows for kind, rows in live.items() if rows != replay[kind]}
        (folder / f"{name}.json").write_text(f'{{\n"replay": {_text(replay)},\n"live": {_text(other)}\n}}\n')


def _text(facts: Facts) -> str:
    """JSON with a line for each row; the first line of a kind has the names of its fields."""
    kinds = []
    for kind, rows in facts.items():
        names = sorted(rows[0]) if rows else []
        lines = [json.dumps(line, sort_keys=True) for line in [names, *([row[name] for name in names] for row in rows)]]
        kinds.append(f'"{kind}": [\n' + ",\n".join(lines) + "\n]")
    return "{" + ",\n".join(kinds) + "}"


def _facts(content: Mapping[str, Any]) -> Facts:
    """The inverse."""
    return {kind: [dict(zip(names, row, strict=True)) for row in rows] for kind, (names, *rows) in content.items()}


@click.command()
@click.argument("pipelines", nargs=-1, type=click.Choice(PIPELINES))
@click.option("--compare", is_flag=True, help="Write nothing: show what differs from the record.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), default=RECORD, help="Folder of the record.")
def main(pipelines: Sequence[str], compare: bool, output: Path) -> None:
    """Write the golden record of PIPELINES (default: all), or compare with it."""
    do_not_wait_for_the_disk()
    logging.getLogger("modyn_dagster").setLevel(logging.ERROR)
    with scratch_folder() as folder:
        server = EmbeddedPostgres(folder / "server")
        url = server.start().url
        try:
            do_not_wait_in_postgres(url)
            subjects = made(folder, url, pipelines or PIPELINES)
        finally:
            server.stop()
        common = {"environment": environment(), "schemas": schemas(folder / "schemas")}
    subjects = json.loads(json.dumps(subjects))
    if not compare:
        write(output, subjects, common)
        click.echo(f"recorded {len(subjects)} pipelines and datasets in {output}")
        return
    recorded = read_common(output)
    same_place = recorded["environment"] == common["environment"]
    if not same_place:
        click.echo(f"recorded elsewhere, so models and scores are not compared: {recorded['environment']}")
    if other := [name for name, digest in common["schemas"].items() if recorded["schemas"].get(name) != digest]:
        click.echo(f"schemas: {', '.join(other)}")
    differences = difference(read(output, list(subjects)), subjects, same_place=same_place)
    for line in differences:
        click.echo(line)
    broken = other or [line for line in differences if not ours(line)]
    click.echo(f"{len(subjects)} pipelines and datasets: {'different' if broken else 'equal'}")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
