"""``modyn-dagster schema``: JSON Schemas of the specs, for editors that complete and check the YAML files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from modyn_dagster.spec.base import Spec
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.storage import atomic_write

SCHEMAS: Final[Mapping[str, type[Spec]]] = {
    "dataset.schema.json": DatasetSpec,
    "pipeline.schema.json": PipelineSpec,
}
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema_of(kind: type[Spec]) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one kind of spec, as a user writes it in YAML."""
    return {"$schema": DIALECT, **kind.model_json_schema(by_alias=True, mode="validation")}


def schema_text(kind: type[Spec]) -> str:
    """Content of a schema file."""
    return json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"


@click.command()
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("docs/schemas"),
    show_default=True,
    help="Folder to write into.",
)
def schema(output: Path) -> None:
    """Write the JSON Schemas of datasets/*.yaml and pipelines/*.yaml.

    A first line `# yaml-language-server: $schema=<path of the schema>` in a YAML file makes an editor with the YAML
    language server complete fields, show their descriptions and underline mistakes.
    """
    for name, kind in SCHEMAS.items():
        with atomic_write(output / name) as file:
            file.write(schema_text(kind).encode())
        click.echo(output / name)
