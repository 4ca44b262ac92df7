"""Values of YAML files that people write: size, depth, nodes and digits are bounded, and no key stands twice in a mapping.

PyYAML alone keeps the last of two equal keys without a word, recurses to any depth, and multiplies aliases of aliases.
"""

from pathlib import Path
from typing import Any, Final

import yaml

from modyn_dagster.errors import ConfigError

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64
#: Values and keys of a file, with everything that an alias stands for counted at each of its places.
MAX_NODES: Final = 20_000
#: Of a number: more than any field needs, and less than Python converts quickly.
MAX_DIGITS: Final = 100

_NUMBERS: Final = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp"})


def read_yaml(path: Path) -> Any:
    """Read the one document of a YAML file.

    Raises ``ConfigError`` for a file that cannot be read, is no YAML, is out of bounds, or has a key twice in one mapping.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise _error(path, path.name, f"cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise _error(path, path.name, f"is larger than {MAX_BYTES:,} bytes, the limit for a file that a person writes")
    try:
        return yaml.load(data.decode(), _BoundedLoader)  # noqa: S506 - a safe loader with bounds
    except UnicodeDecodeError as error:
        raise _error(path, path.name, f"is not UTF-8: {error.reason} at byte {error.start}") from error
    except _OutOfBounds as error:
        raise _error(path, error.value, f"line {error.line}: {error.rule}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise _error(path, path.name, f"is not valid YAML: {error}") from error


def _error(path: Path, value: object, rule: str) -> ConfigError:
    return ConfigError(str(path), "(file)", value, rule)


class _OutOfBounds(Exception):
    def __init__(self, mark: Any, value: object, rule: str) -> None:
        super().__init__(rule)
        self.line, self.value, self.rule = mark.line + 1, value, rule


class _BoundedLoader(yaml.SafeLoader):
    """Loader that counts while it composes, before any value is made."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._nodes = 0
        #: Nodes below each node that is complete, itself included; an alias can only stand for one of these.
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it out
        before = self._nodes
        self._nodes += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _OutOfBounds(event.start_mark, f"{MAX_DEPTH + 1} levels", f"nests deeper than {MAX_DEPTH} levels")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                raise _OutOfBounds(event.start_mark, f"*{event.anchor}", "an alias stands for a value that it is part of")
            self._nodes = before + self._sizes[id(node)]
        else:
            self._sizes[id(node)] = self._nodes - before
        if self._nodes > MAX_NODES:
            raise _OutOfBounds(event.start_mark, f"{self._nodes:,} values", f"holds more than {MAX_NODES:,} values")
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        if node.tag in _NUMBERS and len(node.value) > MAX_DIGITS:
            found = f"{len(node.value):,} characters"
            raise _OutOfBounds(node.start_mark, found, f"a number has more than {MAX_DIGITS} characters")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: dict[tuple[str, str], yaml.Mark] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                first = seen.setdefault((key.tag, key.value), key.start_mark)
                if first is not key.start_mark:
                    rule = f"the key stands twice in one mapping, first in line {first.line + 1}; remove one"
                    raise _OutOfBounds(key.start_mark, key.value, rule)
        return node
