"""``modyn-dagster dataset lineage``: training sets, models, live times and predictions that samples went into."""

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import click

from modyn_dagster.cli.console import say, show_table
from modyn_dagster.cli.project import open_platform

if TYPE_CHECKING:
    from modyn_dagster.ingestion.deletion.keys import Choice
    from modyn_dagster.pipeline.operate.live_intervals import LiveTime
    from modyn_dagster.pipeline.operate.sample_lineage import SampleLineage
    from modyn_dagster.reporting.terminal import TerminalTable


@click.command()
@click.argument("name")
@click.argument("keys")
@click.option("--ids", is_flag=True, help="KEYS are ids of samples, as of `dataset delete --ids`.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def lineage(name: str, keys: str, *, ids: bool, as_json: bool) -> None:
    """Show everything that the samples KEYS of dataset NAME went into.

    KEYS are keys and ranges of keys, as of `dataset delete --keys`, or ids. Shown are training sets, the models trained on them,
    those that were made from such a model, the times in which they were live, and prediction files that cover the samples.
    """
    from modyn_dagster.ingestion.deletion.keys import chosen_keys
    from modyn_dagster.pipeline.operate.sample_lineage import lineage_of

    with closing(open_platform()) as platform:
        dataset, by = platform.view(name).row, "ids" if ids else "keys"
        with platform.transaction() as conn:
            chosen = chosen_keys(conn, platform.home, platform.dataset(name), dataset, cast("Choice", by), keys)
        found = lineage_of(platform, name, dataset.id, chosen)
    if as_json:
        click.echo(json.dumps(lineage_json(found), indent=2))
        return
    show_table(_table(name, keys, found))
    for trigger, file in found.predictions:
        say(f"predictions: {file.path} of trigger {trigger}, {file.n_samples} samples")


def lineage_json(found: "SampleLineage") -> dict[str, Any]:
    """Lineage of samples as JSON."""
    uses = [
        {
            "pipeline": use.used_by.pipeline,
            "mode": use.used_by.mode,
            "trigger": use.used_by.partition_key,
            "training_set": use.used_by.path,
            "n_keys": use.n_keys,
            "why_unknown": use.why_unknown,
            "model": use.used_by.model_hash,
            "sources": list(use.sources),
            "live": _live(found.live.get(use.used_by.partition_key)),
        }
        for use in found.uses
    ]
    files = [{"trigger": trigger, "path": file.path, "model": file.model_hash} for trigger, file in found.predictions]
    return {"uses": uses, "predictions": files}


def _live(time: "LiveTime | None") -> dict[str, str | None] | None:
    return None if time is None else {"from": time.since.isoformat(), "to": time.until.isoformat() if time.until else None}


def _table(name: str, keys: str, found: "SampleLineage") -> "TerminalTable":
    from modyn_dagster.reporting.tables import Table

    rows = []
    for use in found.uses:
        used, time = use.used_by, found.live.get(use.used_by.partition_key)
        live = "" if time is None else f"{time.since:%Y-%m-%d %H:%M} to {f'{time.until:%Y-%m-%d %H:%M}' if time.until else 'now'}"
        n_keys = f"unknown: {use.why_unknown}" if use.n_keys is None else str(use.n_keys)
        sources = ", ".join(source.replace("_", " ") for source in use.sources)
        rows.append((used.pipeline, used.mode, used.partition_key, n_keys, sources, used.model_hash or "", live))
    header = ("pipeline", "mode", "trigger", "keys", "through", "model", "live")
    caption = f"{len(found.uses)} training sets, {len(found.predictions)} prediction files"
    return Table(header, tuple(rows), caption, title=f"{name}: {keys}", texts=True).rich()
