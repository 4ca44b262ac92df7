"""``modyn-dagster model export``: a model as a file for other systems."""

from pathlib import Path

import click

from modyn_dagster.cli.model_store import chosen_model, open_store, store_option


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
@click.option("--retrain", is_flag=True, help="Train a model again that is stored as its provenance.")
def export(
    model: str, path: Path, root: str | None, inputs: Path | None, positional: bool, allow: tuple[str, ...], retrain: bool
) -> None:
    """Write MODEL to PATH: .safetensors, .pt (TorchScript) or .pt2 (torch.export).

    The last two need the architecture that was saved with the model, and example inputs. Models of pipelines take a mapping
    of tensors by name.
    """
    store = open_store(root, *allow)
    given = None
    if inputs is not None:
        from safetensors.torch import load_file

        tensors = load_file(inputs)
        given = tuple(tensors[name] for name in sorted(tensors)) if positional else (tensors,)
    store.export(chosen_model(store, model), path, inputs=given, retrain=retrain)
    click.echo(f"{path}: {path.stat().st_size} bytes")
