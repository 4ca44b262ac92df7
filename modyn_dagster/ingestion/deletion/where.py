"""The small language of ``dataset delete --where``, parsed here into SQLAlchemy expressions; no text of it reaches SQL.

    condition  := all ("or" all)*
    all        := one ("and" one)*
    one        := "not" one | "(" condition ")" | field operator value | field ["not"] "in" "(" value ("," value)* ")"
    field      := "label" | "target" | "time" | "attributes." name
    operator   := "=" | "!=" | "<" | "<=" | ">" | ">="

A value or name with spaces or signs stands in quotes, '...' or "...", doubled to mean itself. As in SQL, a sample that has no
value for a field matches no comparison with it, ``!=`` and ``not`` included.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, NamedTuple, NoReturn

import sqlalchemy as sa

from modyn_dagster.errors import ConfigError
from modyn_dagster.ingestion.deletion.fields import EQUALITY, Field

Condition = sa.ColumnElement[bool]

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}
_KEYWORDS: Final = ("and", "or", "not", "in")
_PREFIX: Final = "attributes."
#: Deeper nesting is no condition that a person wrote.
_MOST_NESTED: Final = 50
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<sign>[(),]|!=|<=|>=|[=<>])|(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*")|(?P<word>[^\s(),!=<>'"]+)|(?P<end>\Z))"""
)


class Token(NamedTuple):
    """A sign, a word or a quoted text; ``position`` counts characters from 1."""

    kind: str
    text: str
    position: int


def parse_where(text: str, fields: Mapping[str, Field]) -> Condition:
    """The condition that a text means; ``ConfigError`` names the position of what cannot be understood."""
    return _Parser(text, fields).parse()


class _Parser:
    """Recursive descent, one method per rule of the grammar."""

    def __init__(self, text: str, fields: Mapping[str, Field]) -> None:
        self._fields = fields
        self._tokens = list(_tokens(text))
        self._next = 0
        self._nested = 0

    def parse(self) -> Condition:
        condition = self._any()
        if self._peek().kind != "end":
            self._refuse("must end here, or go on with `and` or `or`")
        return condition

    def _any(self) -> Condition:
        parts = [self._all()]
        while self._taken("or"):
            parts.append(self._all())
        return sa.or_(*parts)

    def _all(self) -> Condition:
        parts = [self._one()]
        while self._taken("and"):
            parts.append(self._one())
        return sa.and_(*parts)

    def _one(self) -> Condition:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            self._refuse(f"must not be nested more than {_MOST_NESTED} deep")
        if self._taken("not"):
            condition: Condition = sa.not_(self._one())
        elif self._taken("("):
            condition = self._any()
            self._require(")")
        else:
            condition = self._comparison()
        self._nested -= 1
        return condition

    def _comparison(self) -> Condition:
        field = self._field()
        if self._taken("in"):
            return field.column.in_(self._values(field))
        if self._taken("not"):
            self._require("in")
            return field.column.not_in(self._values(field))
        sign = self._peek()
        if sign.kind != "sign" or sign.text not in _OPERATORS:
            self._refuse("must be one of = != < <= > >= in")
        if sign.text not in field.operators:
            self._refuse(f"must be one of {' '.join(EQUALITY)} in: there is no order of its values")
        self._next += 1
        condition: Condition = _OPERATORS[sign.text](field.column, self._value(field))
        return condition

    def _field(self) -> Field:
        token = self._peek()
        name = token.text
        if token.kind == "word" and name == _PREFIX and self._tokens[self._next + 1].kind == "quoted":
            self._next += 1
            name = _PREFIX + self._peek().text
        if token.kind != "word" or name not in self._fields:
            self._refuse(f"must be a field of the dataset: {', '.join(self._fields)}", token._replace(text=name))
        self._next += 1
        return self._fields[name]

    def _values(self, field: Field) -> list[Any]:
        self._require("(")
        values = [self._value(field)]
        while self._taken(","):
            values.append(self._value(field))
        self._require(")")
        return values

    def _value(self, field: Field) -> Any:
        token = self._peek()
        if token.kind not in ("word", "quoted") or (token.kind == "word" and token.text.lower() in _KEYWORDS):
            self._refuse("must be a value; one with spaces or signs, or that is and, or, not, in, stands in quotes")
        try:
            value = field.parse(token.text)
        except ValueError as error:
            self._refuse(str(error))
        self._next += 1
        return value

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _taken(self, wanted: str) -> bool:
        token = self._peek()
        found = token.kind in ("word", "sign") and token.text.lower() == wanted
        self._next += found
        return found

    def _require(self, wanted: str) -> None:
        if not self._taken(wanted):
            self._refuse(f"must be {wanted!r}")

    def _refuse(self, rule: str, token: Token | None = None) -> NoReturn:
        found = token or self._peek()
        raise _error(found.position, found.text if found.kind != "end" else "the end", rule)


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at <= len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            rule = "must be closed by another quote" if text[start] in "'\"" else "must be a field, a value or an operator"
            raise _error(start + 1, text[start : start + 20], rule)
        kind = str(match.lastgroup)
        found = match[kind]
        if kind == "quoted":
            found = found[1:-1].replace(found[0] * 2, found[0])
        yield Token(kind, found, match.start(kind) + 1)
        if kind == "end":
            return
        at = match.end()


def _error(position: int, found: str, rule: str) -> ConfigError:
    return ConfigError("dataset delete", f"--where, position {position}", found, rule)
