"""``modyn-dagster model probe``: check that a training step repeats its bits, here or on another machine."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from modyn_dagster.errors import ConfigError, ModynError
from modyn_dagster.progress import progress_bar

if TYPE_CHECKING:
    from torch import Tensor, nn


@click.command()
@click.argument("factory", metavar="PACKAGE.MODULE:FACTORY")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of every random generator.")
@click.option("--threads", type=click.IntRange(1), help="Threads to compute with; default: as many as torch uses.")
@click.option("--any-algorithm", is_flag=True, help="Also allow algorithms that torch does not call deterministic.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Run once and write a summary for another machine.")
@click.option(
    "--against",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run once and compare with a summary that was saved elsewhere.",
)
@click.option("--all", "show_all", is_flag=True, help="Show every call, not only those that differ.")
def probe(
    factory: str,
    seed: int,
    threads: int | None,
    any_algorithm: bool,
    save: Path | None,
    against: Path | None,
    show_all: bool,
) -> None:
    """Run a forward pass and a training step twice and show the first layer whose input, output or gradient differs.

    FACTORY returns three values: a function that builds the module, a tuple of its inputs, and a loss of its outputs. It is
    called once, seeded; the function that builds the module is called in every run, with the same seed. Your code runs. The
    exit code is 1 when a bit differs: then such a model must not be stored as its provenance.
    """
    import torch

    from modyn_dagster.cli.console import say, show_table
    from modyn_dagster.model_store.probe.recording import summarise
    from modyn_dagster.model_store.probe.report import Summary, compare
    from modyn_dagster.reporting.model_tables import probe_table, probe_verdict
    from modyn_dagster.reproducibility.determinism import reproducible

    sys.path.insert(0, str(Path.cwd()))
    with reproducible(seed, threads=threads or torch.get_num_threads()):
        build, inputs, loss = _parts(factory)
    n_runs = 2 if save is None and against is None else 1

    def run(number: int) -> Summary:
        try:
            summary = summarise(build, inputs, loss, seed=seed, threads=threads, deterministic=not any_algorithm)
        except ModynError:
            raise
        except Exception as error:
            raise _failed(factory, "a training step of it fails", error) from error
        progress(number, n_runs)
        return summary

    with progress_bar("probe") as progress:
        if save is not None:
            run(1).save(save)
            say(f"{save}: take it to the other machine, and run this with --against")
            return
        expected = run(1) if against is None else Summary.load(against)
        report = compare(expected, run(n_runs), same_model=against is None)
    if show_all or not report.is_safe:
        show_table(probe_table(report, only_different=not show_all).rich())
    say(probe_verdict(report))
    if not report.is_safe:
        raise click.exceptions.Exit(1)


def _parts(factory: str) -> "tuple[Callable[[], nn.Module], tuple[Any, ...], Callable[[Any], Tensor]]":
    """Call the factory and check its three values; ``ConfigError`` for anything else."""
    from modyn_dagster.imports import import_callable

    function = import_callable(factory, source="probe", field="factory")
    try:
        parts = function()
    except Exception as error:
        raise _failed(factory, "it is called without arguments and fails", error) from error
    match parts:
        case (build, tuple(inputs), loss) if callable(build) and callable(loss):
            return build, inputs, loss
    rule = f"must return a function that builds the module, a tuple of its inputs, and a loss; not a {type(parts).__name__}"
    raise ConfigError("probe", "factory", factory, rule)


def _failed(factory: str, problem: str, error: Exception) -> ConfigError:
    message = (str(error).splitlines() or [""])[0]
    hint = "; --any-algorithm allows it" if "deterministic" in message else ""
    return ConfigError("probe", "factory", factory, f"{problem}: {type(error).__name__}: {message}{hint}")
