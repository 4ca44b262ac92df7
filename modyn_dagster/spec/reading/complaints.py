"""Complaints of pydantic about a spec as ``ConfigError``: one for each fault, with the name that was probably meant."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Final

from pydantic import ValidationError

from modyn_dagster.errors import ConfigError, without_secrets
from modyn_dagster.spec.base import Spec

_Location = tuple[int | str, ...]

#: Types of complaints that name a mistake precisely, and types that only say what a branch of a union lacks.
_SPECIFIC: Final = ("extra_forbidden", "union_tag_invalid")
_VAGUE: Final = ("missing", "union_tag_not_found", "model_type", "model_attributes_type")
#: Begin of the names of fields that say where a secret is. Their values are not shown: some put the secret itself there.
_HIDDEN: Final = "secret"
_NO_MAPPING: Final = ("model_type", "model_attributes_type", "dict_type")


@dataclass(frozen=True, slots=True)
class _Complaint:
    """A complaint of pydantic: its facts and its location.

    Attributes:
        facts: as pydantic gives them.
        path: parts of the location, with True for those of the user; the others name branches of unions.
    """

    facts: Mapping[str, Any]
    path: tuple[tuple[str, bool], ...]

    @property
    def field(self) -> tuple[str, ...]:
        """The user's part of the location."""
        return tuple(part for part, users in self.path if users)

    @property
    def branch(self) -> tuple[str, ...]:
        """The location up to the last branch of a union."""
        last = max((n for n, (_, users) in enumerate(self.path, 1) if not users), default=0)
        return tuple(part for part, _ in self.path[:last])

    def excludes(self, other: "_Complaint") -> bool:
        """The two stem from different branches of one union, of which the user meant one at most."""
        apart = next(((one, two) for one, two in zip(self.path, other.path) if one != two), None)
        return apart is not None and not (apart[0][1] and apart[1][1])

    def rank(self, sizes: Mapping[tuple[str, ...], int]) -> tuple[int, int, int]:
        """Order of complaints: the most useful one is the smallest."""
        kind = self.facts["type"]
        depth = len(self.field) + kind.startswith("union_tag")
        return -depth, sizes[self.branch], 0 if kind in _SPECIFIC else 2 if kind in _VAGUE else 1


def config_error(source: str, content: object, error: ValidationError) -> ConfigError:
    """The most useful complaint of a failed validation.

    In a union, complaints of the branch that matched furthest come first, then those of the branch with the fewest, then
    unknown names before missing ones.
    """
    complaints = _complaints(content, error)
    return _as_error(source, content, min(complaints, key=_ranking(complaints)))


def config_errors(source: str, content: object, error: ValidationError) -> list[ConfigError]:
    """A complaint about each fault of a spec, in the order of its fields.

    Of a union, only complaints of the branch with the most useful one count.
    """
    complaints = _complaints(content, error)
    chosen: list[_Complaint] = []
    for complaint in sorted(complaints, key=_ranking(complaints)):
        if not any(complaint.excludes(other) or complaint.field == other.field for other in chosen):
            chosen.append(complaint)
    return [_as_error(source, content, complaint) for complaint in complaints if complaint in chosen]


def probable(name: object, known: Sequence[str]) -> str:
    """Question for the known name that resembles an unknown one, to be appended to a rule; empty where none does.

    >>> probable("evry", ["every", "start"])
    ' (did you mean every?)'
    """
    near = get_close_matches(str(name), known, n=1, cutoff=0.7)
    return f" (did you mean {near[0]}?)" if near else ""


def _complaints(content: object, error: ValidationError) -> list[_Complaint]:
    return [_Complaint(facts, tuple(_walk(content, facts["loc"], facts["type"]))) for facts in error.errors()]


def _ranking(complaints: Sequence[_Complaint]) -> Any:
    sizes = Counter(complaint.branch for complaint in complaints)
    return lambda complaint: complaint.rank(sizes)


def _as_error(source: str, content: object, complaint: _Complaint) -> ConfigError:
    facts, field = complaint.facts, complaint.field
    value, kind, context = facts.get("input"), facts["type"], facts.get("ctx", {})
    name, shown, rule = ".".join(field) or "(file)", value, str(facts["msg"]).removeprefix("Value error, ")
    if kind == "extra_forbidden":
        rule = "is not a field here" + probable(field[-1], _fields_beside(content, field))
    elif kind == "missing":
        rule, shown = "is required", _field_names(value)
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        name = ".".join([*field, context["discriminator"].strip("'")])
        missing = kind == "union_tag_not_found" and isinstance(value, Mapping)
        shown = _field_names(value) if missing else context.get("tag", value)
        rule = "is required"
        if kind == "union_tag_invalid":
            known = context["expected_tags"]
            rule = f"must be one of {known}" + probable(shown, [tag.strip("' ") for tag in known.split(",")])
    elif kind in _NO_MAPPING:
        rule = "must be a mapping of fields"
    if field and field[-1].startswith(_HIDDEN):
        shown = "..."
    elif isinstance(shown, Mapping):
        shown = {name: "..." if str(name).startswith(_HIDDEN) else value for name, value in shown.items()}
    return ConfigError(source, name, without_secrets(shown) if isinstance(shown, str) and "://" in shown else shown, rule)


def _field_names(value: object) -> object:
    """Names of the given fields: a misspelt one shows beside the missing one."""
    return list(value) if isinstance(value, Mapping) else value


def _fields_beside(content: Any, field: Sequence[str]) -> list[str]:
    """Fields of the kind of spec that shares most names with the mapping of an unknown field; of several, the smallest."""
    for part in field[:-1]:
        content = content[int(part)] if isinstance(content, list) else content[part]
    given = set(map(str, content))
    best = max(_known_fields(), key=lambda known: (len(given & known), -len(known)))
    return sorted(best - given)


@cache
def _known_fields() -> tuple[frozenset[str], ...]:
    """Names of the fields of every kind of spec."""
    kinds, found = [Spec], []
    while kinds:
        kind = kinds.pop()
        found.append(frozenset(field.alias or name for name, field in kind.model_fields.items()))
        kinds += kind.__subclasses__()
    return tuple(found)


def _walk(content: Any, location: _Location, kind: str) -> Iterator[tuple[str, bool]]:
    """Parts of a location, with True for those of the user; the others are pydantic's names of branches of unions."""
    for n, part in enumerate(location, 1):
        listed = isinstance(content, list) and isinstance(part, int) and part < len(content)
        # YAML reads a key such as 0 as a number, and a spec turns it into text.
        keys = [key for key in content if str(key) == str(part)] if isinstance(content, Mapping) else []
        if listed or keys:
            content = content[keys[0] if keys else part]
            yield str(part), True
        else:
            yield str(part), kind == "missing" and n == len(location)
