"""Graphs of Python objects as JSON: for libraries without a model file of their own.

Objects are taken apart as Python's copying does (``__reduce_ex__``), and put together by classes of one library alone, and a
few of the standard library. While a graph is read, no function that it names is called but those that restore compiled
classes. The same graph gives the same bytes.
"""

import json
from collections.abc import Collection
from typing import Any

from modyn_dagster.errors import ConfigError
from modyn_dagster.training.trainers.stored.graph_reader import GraphReader
from modyn_dagster.training.trainers.stored.graph_writer import GraphWriter
from modyn_dagster.training.trainers.stored.object_names import ObjectNames


def encode(model: object, package: str, *, source: str) -> bytes:
    """JSON of an object and all that it holds; ``ConfigError`` names what cannot be stored.

    Args:
        model: the object.
        package: package whose classes and functions it may hold.
        source: name of the pipeline, for errors.
    """
    writer = GraphWriter(ObjectNames(package, (), source))
    return json.dumps({"package": package, "nodes": writer.nodes_of(model)}, separators=(",", ":")).encode()


def decode(content: bytes, package: str, forbidden: Collection[str], *, source: str) -> Any:
    """Object of its JSON.

    Args:
        content: bytes of ``encode``.
        package: package whose classes and functions it may hold.
        forbidden: modules of the package that no model needs.
        source: name of the pipeline, for errors.

    Raises:
        ConfigError: the file names something else, or is damaged.
    """
    names = ObjectNames(package, tuple(forbidden), source)
    try:
        return GraphReader(json.loads(content)["nodes"], names).model()
    except ConfigError:
        raise
    except Exception as error:
        rule = f"is no model of {package}, or a damaged one: {type(error).__name__}: {error}"
        raise ConfigError(source, "training.model", "model file", rule) from error
