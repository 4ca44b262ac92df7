"""``modyn-dagster disk``: what takes space on the disk, and whose it is."""

import json
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from modyn_dagster.cli.console import show_table
from modyn_dagster.cli.project import open_platform

if TYPE_CHECKING:
    from modyn_dagster.pipeline.operate.disk_usage import DiskUsage
    from modyn_dagster.reporting.tables import Table


@click.group()
def disk() -> None:
    """Show what takes space on the disk."""


@disk.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in bytes.")
def usage(as_json: bool) -> None:
    """Show the space of every kind of file, by the dataset or pipeline that it belongs to.

    Reads no file, only their sizes. It works while Postgres is down, too; runs are then shown by their numbers.
    """
    from modyn_dagster.pipeline.operate.disk_usage import disk_usage

    with closing(open_platform()) as platform:
        measured = disk_usage(platform)
        home, files = str(platform.settings.home), platform.settings.files
    if as_json:
        parts = [asdict(part) for part in measured.parts]
        places = {"home": home} | ({} if files is None else {"files": files})
        content = {**places, "n_bytes": measured.n_bytes, "parts": parts, "elsewhere": measured.elsewhere}
        click.echo(json.dumps(content | {"problem": measured.problem, "uncounted": measured.uncounted}, indent=2))
        return
    click.echo(home if files is None else f"{home} and {files}")
    show_table(usage_table(measured).rich())
    for root in measured.elsewhere:
        click.echo(f"models at {root} are not on this disk and not counted")
    if measured.uncounted is not None:
        click.echo(f"files at {files} are not counted: {measured.uncounted}", err=True)
    if measured.problem is not None:
        click.echo(f"whose runs and models these are is unknown, and the databases are not divided: {measured.problem}", err=True)


def usage_table(measured: "DiskUsage") -> "Table":
    """Table of kinds, and the owners of each, the largest first."""
    from modyn_dagster.reporting.model_tables import bytes_text
    from modyn_dagster.reporting.tables import Table

    rows: list[tuple[str, ...]] = []
    for kind in dict.fromkeys(part.kind for part in measured.parts):
        parts = [part for part in measured.parts if part.kind == kind]
        for i, part in enumerate(parts):
            n_files = "" if part.n_files is None else f"{part.n_files:,}"
            rows.append(("" if i else kind, part.owner, n_files, bytes_text(part.n_bytes)))
    caption = f"{bytes_text(measured.n_bytes)} in all; files with several names count once"
    return Table(("kind", "of", "files", "size"), tuple(rows), caption)
