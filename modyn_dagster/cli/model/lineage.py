"""``modyn-dagster model lineage``: the samples that a model was trained on, by batch."""

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from modyn_dagster.cli.console import say, show_table
from modyn_dagster.cli.project import open_platform
from modyn_dagster.errors import ConfigError, UnknownName

if TYPE_CHECKING:
    from modyn_dagster.pipeline.operate.model_lineage import TrainedOn
    from modyn_dagster.pipeline.platform import Platform


@click.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def lineage(model: str, as_json: bool) -> None:
    """Show the samples that MODEL was trained on, by batch, and those of the models whose weights it began with.

    MODEL is an id, or its first digits, of a model that a trigger of the project names; its weights may be removed.
    """
    from modyn_dagster.pipeline.operate.model_lineage import trained_on
    from modyn_dagster.reporting.tables import Table

    with closing(open_platform()) as platform:
        sets = trained_on(platform, _named_model(platform, model))
    if as_json:
        click.echo(json.dumps([_json(each) for each in sets], indent=2))
        return
    for each in sets:
        used = each.used
        title = f"model {used.model_hash}, {used.pipeline} ({used.mode}) trigger {used.partition_key}"
        if each.why_unknown:
            say(f"{title}: unknown: {each.why_unknown}")
            continue
        rows = tuple((batch.batch, str(batch.n_samples)) for batch in each.batches)
        show_table(Table(("batch", "samples"), rows, f"{used.n_samples} samples in {len(rows)} batches", title=title).rich())


def _json(each: "TrainedOn") -> dict[str, Any]:
    return {
        "model": each.used.model_hash,
        "previous_model": each.used.previous_hash,
        "pipeline": each.used.pipeline,
        "mode": each.used.mode,
        "trigger": each.used.partition_key,
        "training_set": each.used.path,
        "samples": each.used.n_samples,
        "batches": {batch.batch: batch.n_samples for batch in each.batches},
        "why_unknown": each.why_unknown,
    }


def _named_model(platform: "Platform", text: str) -> str:
    from modyn_dagster.catalog.results.models import model_uses

    with platform.transaction() as conn:
        found = sorted({use.hash for use in model_uses(conn) if text and use.hash.startswith(text)})
    if not found:
        raise UnknownName("model of a trigger", text)
    if len(found) > 1:
        raise ConfigError("model", "id", text, f"must be that of one model; {len(found)} begin like this: give more digits")
    return found[0]
