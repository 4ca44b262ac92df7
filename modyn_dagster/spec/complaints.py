"""What pydantic says of a spec, as one ``ConfigError``: the field a person meant, and what may stand there."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from modyn_dagster.errors import ConfigError, without_secrets

_Location = tuple[int | str, ...]

#: How much a complaint says of a mistake, the most first; where a union was meant otherwise its others are of no interest.
_TELLING: Final = ("extra_forbidden", "union_tag_invalid")
_LEAST: Final = ("missing", "union_tag_not_found", "model_type", "model_attributes_type")
_NO_MAPPING: Final = ("model_type", "model_attributes_type", "dict_type")


def config_error(source: str, content: object, error: ValidationError) -> ConfigError:
    """The complaint about what a person most likely meant.

    In a union that is the branch that matched furthest; of several, the one with the fewest complaints; of those, a name
    that is unknown before one that is missing.
    """
    complaints = error.errors()
    paths = [list(_walk(content, complaint["loc"], complaint["type"])) for complaint in complaints]
    sizes = Counter(branch for _, branch in map(_split, paths))

    def meant(index: int) -> tuple[int, int, int]:
        field, branch = _split(paths[index])
        kind = complaints[index]["type"]
        deep = len(field) + kind.startswith("union_tag")
        return -deep, sizes[branch], 0 if kind in _TELLING else 2 if kind in _LEAST else 1

    chosen = min(range(len(complaints)), key=meant)
    return _as_error(source, _split(paths[chosen])[0], complaints[chosen])


def _as_error(source: str, field: Sequence[str], complaint: Mapping[str, Any]) -> ConfigError:
    found, kind, context = complaint.get("input"), complaint["type"], complaint.get("ctx", {})
    name, shown, rule = ".".join(field) or "(file)", found, str(complaint["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        rule = "is not a field here"
    elif kind == "missing":
        rule, shown = "is required", _names(found)
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        name = ".".join([*field, context["discriminator"].strip("'")])
        missing = kind == "union_tag_not_found" and isinstance(found, Mapping)
        rule = f"must be one of {context['expected_tags']}" if kind == "union_tag_invalid" else "is required"
        shown = _names(found) if missing else context.get("tag", found)
    elif kind in _NO_MAPPING:
        rule = "must be a mapping of fields"
    return ConfigError(source, name, without_secrets(shown) if isinstance(shown, str) and "://" in shown else shown, rule)


def _names(found: object) -> object:
    """The fields there are: beside one that is missing, its misspelling shows."""
    return list(found) if isinstance(found, Mapping) else found


def _walk(content: Any, location: _Location, kind: str) -> Iterator[tuple[str, bool]]:
    """The parts of a location, and whether each is the user's; others are pydantic's names of the branches of unions."""
    for n, part in enumerate(location, 1):
        listed = isinstance(content, list) and isinstance(part, int) and part < len(content)
        if listed or (isinstance(content, Mapping) and part in content):
            content = content[part]
            yield str(part), True
        else:
            yield str(part), kind == "missing" and n == len(location)


def _split(path: Sequence[tuple[str, bool]]) -> tuple[list[str], tuple[str, ...]]:
    """The field, and the branch it is looked at in: everything up to the last of pydantic's names."""
    last = max((n for n, (_, users) in enumerate(path, 1) if not users), default=0)
    return [part for part, users in path if users], tuple(part for part, _ in path[:last])
