"""``modyn-dagster verify`` and ``repair``: the whole home against the catalog, and what can be made again."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import click

from modyn_dagster.cli.project import open_platform
from modyn_dagster.pipeline.integrity.finding import KINDS
from modyn_dagster.progress import progress_bar

if TYPE_CHECKING:
    from modyn_dagster.pipeline.integrity.finding import Finding, Kind

#: Exit code when a file was damaged or missing: none of errors, of wrong usage or of Ctrl-C.
DAMAGED: Final = 3

_KIND: Final = click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(KINDS),
    metavar="KIND",
    help=f"Only files of this kind: {', '.join(KINDS)}. Can be repeated.",
)
_RATE: Final = click.option("--rate", type=float, metavar="MB/S", help="Read at most so many megabytes a second.")
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _scope(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--pipeline", metavar="NAME", help="Only the runs and models of this pipeline."),
        click.option("--dataset", metavar="NAME", help="Only the files of this dataset."),
    ):
        command = option(command)
    return command


@click.command()
@_scope
@_KIND
@_RATE
@_JSON
def verify(dataset: str | None, pipeline: str | None, kinds: "Sequence[Kind]", rate: float | None, as_json: bool) -> None:
    """Read everything that the catalog names and compare it with its checksum; change nothing.

    Names every damaged and missing file with its owner and what to do, and files that nothing names, which do no harm. The exit
    code is 3 when a file is damaged or missing.
    """
    _verify(dataset, pipeline, kinds, rate, as_json)


@click.command("verify")
@click.argument("name")
@_RATE
@_JSON
def verify_dataset(name: str, rate: float | None, as_json: bool) -> None:
    """Read the indexes, shards, lists and source files of dataset NAME, and compare them with their checksums.

    Bytes of source files are compared with the digests taken at ingestion, whatever their size and time of change. The exit code
    is 3 when a file is damaged or missing.
    """
    _verify(name, None, (), rate, as_json)


@click.command()
@_scope
@_KIND
@_RATE
@_JSON
def repair(dataset: str | None, pipeline: str | None, kinds: "Sequence[Kind]", rate: float | None, as_json: bool) -> None:
    """Verify, and make damaged and missing files again from what they are derived from, with the same bytes.

    Indexes and shards come from the source files, training sets from the selection, models from their training, predictions from
    the model. A file is replaced only by one with the recorded checksum. The exit code is 3 when one could not be made again, or
    not be read; its line says why and which backup has it.
    """
    from modyn_dagster.pipeline.integrity.pacing import Pace
    from modyn_dagster.pipeline.integrity.scope import Scope
    from modyn_dagster.pipeline.integrity.verification import repair as make_again

    outcomes = []
    with closing(open_platform()) as platform:
        pace = Pace(None if rate is None else rate * 1e6)
        scope = Scope.of(platform, dataset=dataset, pipeline=pipeline, kinds=kinds)
        with progress_bar("repair") as show:
            for outcome in make_again(platform, scope, pace, show):
                outcomes.append(outcome)
                if not as_json and outcome.is_repaired:
                    click.echo(f"repaired: {outcome.finding.line.partition(': ')[2].rpartition('; ')[0]}")
                elif not as_json:
                    click.echo(f"not repaired: {outcome.reason}; {outcome.finding.line}", err=True)
    n_repaired = sum(outcome.is_repaired for outcome in outcomes)
    if as_json:
        rows = [outcome.finding.to_json() | {"repaired": outcome.is_repaired, "reason": outcome.reason} for outcome in outcomes]
        click.echo(json.dumps({"bytes_read": pace.n_bytes, "files": rows}, indent=2))
    else:
        click.echo(f"{pace.n_bytes:,} bytes read, {n_repaired} files repaired, {len(outcomes) - n_repaired} not repaired")
    _exit(len(outcomes) - n_repaired)


def _verify(dataset: str | None, pipeline: str | None, kinds: "Sequence[Kind]", rate: float | None, as_json: bool) -> None:
    from modyn_dagster.pipeline.integrity.pacing import Pace
    from modyn_dagster.pipeline.integrity.scope import Scope
    from modyn_dagster.pipeline.integrity.verification import verify as find

    findings: list[Finding] = []
    with closing(open_platform()) as platform:
        pace = Pace(None if rate is None else rate * 1e6)
        scope = Scope.of(platform, dataset=dataset, pipeline=pipeline, kinds=kinds)
        with progress_bar("verify") as show:
            for finding in find(platform, scope, pace, show):
                findings.append(finding)
                if not as_json:
                    click.echo(finding.line, err=finding.is_fault)
    if as_json:
        content: dict[str, Any] = {"bytes_read": pace.n_bytes, "findings": [finding.to_json() for finding in findings]}
        click.echo(json.dumps(content, indent=2))
    else:
        counts = Counter(finding.state for finding in findings)
        states = ", ".join(f"{counts[state]} {state}" for state in ("damaged", "missing", "unverified", "unnamed"))
        click.echo(f"{pace.n_bytes:,} bytes read: {states}")
    _exit(sum(finding.is_fault for finding in findings))


def _exit(n_faults: int) -> None:
    if n_faults:
        raise click.exceptions.Exit(DAMAGED)
