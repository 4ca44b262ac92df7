"""``modyn-dagster model export``: write a model to a file for other systems."""

import sys
import warnings
from pathlib import Path
from typing import Any

import click

from modyn_dagster.cli.console import say
from modyn_dagster.cli.project import chosen_model, open_store, store_option
from modyn_dagster.errors import ConfigError
from modyn_dagster.progress import progress_bar


@click.command()
@click.argument("model")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@store_option
@click.option(
    "--inputs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Safetensors file with example inputs by name, for .pt and .pt2; the model is called with them as one mapping.",
)
@click.option(
    "--positional", is_flag=True, help="Call the model with the example inputs as arguments, in the order of their names."
)
@click.option("--allow", multiple=True, metavar="MODULE", help="Module whose functions may run to build the model.")
@click.option("--retrain", is_flag=True, help="Retrain a model that is stored as its provenance.")
@click.option("--overwrite", is_flag=True, help="Replace PATH if it exists.")
def export(
    model: str,
    path: Path,
    root: str | None,
    inputs: Path | None,
    positional: bool,
    allow: tuple[str, ...],
    retrain: bool,
    overwrite: bool,
) -> None:
    """Write MODEL to PATH: .safetensors, .pt (TorchScript) or .pt2 (torch.export).

    The last two need the architecture that was saved with the model, and example inputs. Models of pipelines take a mapping
    of tensors by name.
    """
    store = open_store(root, *allow)
    chosen = chosen_model(store, model)
    if path.exists() and not overwrite:
        raise ConfigError("export", "path", str(path), "exists already; --overwrite replaces it")
    example_inputs = None if inputs is None else _inputs(inputs, positional)
    if allow:
        # As Python does for its own programs: the user's modules may be in the current folder.
        sys.path.insert(0, str(Path.cwd()))
    with warnings.catch_warnings(record=True) as raised, progress_bar("export", counted=False):
        warnings.simplefilter("default", UserWarning)
        store.export(chosen, path, inputs=example_inputs, retrain=retrain)
    for warning in raised:
        say(f"warning: {warning.message}", err=True)
    say(f"{path}: {path.stat().st_size} bytes")


def _inputs(path: Path, positional: bool) -> tuple[Any, ...]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ConfigError("export", "inputs", str(path), f"must be a safetensors file of example inputs: {error}") from error
    return tuple(tensors[name] for name in sorted(tensors)) if positional else (tensors,)
