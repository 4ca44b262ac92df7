"""Parser of ``dataset delete --where`` into SQLAlchemy expressions; none of the text reaches SQL.

    condition  := conjunction ("or" conjunction)*
    conjunction := term ("and" term)*
    term       := "not" term | "(" condition ")" | field operator value | field ["not"] "in" "(" value ("," value)* ")"
    field      := "label" | "target" | "time" | "attributes." name
    operator   := "=" | "!=" | "<" | "<=" | ">" | ">="

A value or name with spaces or signs is quoted, '...' or "...", with quotes inside doubled. As in SQL, a sample without a value
for a field matches no comparison with it, not even ``!=`` or ``not``.
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
#: Deeper nesting would exhaust the stack; no person writes it.
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
    """Parse a condition.

    Args:
        text: in the grammar of this module.
        fields: by name.

    Raises:
        ConfigError: names the position of the first token that does not fit.
    """
    return _Parser(text, fields).parse()


class _Parser:
    """Recursive descent parser, one method per rule of the grammar."""

    def __init__(self, text: str, fields: Mapping[str, Field]) -> None:
        self._fields = fields
        self._tokens = list(_tokens(text))
        self._next = 0
        self._nested = 0

    def parse(self) -> Condition:
        condition = self._disjunction()
        if self._peek().kind != "end":
            self._refuse("must end here, or go on with `and` or `or`")
        return condition

    def _disjunction(self) -> Condition:
        parts = [self._conjunction()]
        while self._accept("or"):
            parts.append(self._conjunction())
        return sa.or_(*parts)

    def _conjunction(self) -> Condition:
        parts = [self._term()]
        while self._accept("and"):
            parts.append(self._term())
        return sa.and_(*parts)

    def _term(self) -> Condition:
        self._nested += 1
        if self._nested > _MOST_NESTED:
            self._refuse(f"must not be nested more than {_MOST_NESTED} deep")
        if self._accept("not"):
            condition: Condition = sa.not_(self._term())
        elif self._accept("("):
            condition = self._disjunction()
            self._require(")")
        else:
            condition = self._comparison()
        self._nested -= 1
        return condition

    def _comparison(self) -> Condition:
        field = self._field()
        if self._accept("in"):
            return field.column.in_(self._values(field))
        if self._accept("not"):
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
        while self._accept(","):
            values.append(self._value(field))
        self._require(")")
        return values

    def _value(self, field: Field) -> Any:
        token = self._peek()
        if token.kind not in ("word", "quoted") or (token.kind == "word" and token.text.lower() in _KEYWORDS):
            self._refuse("must be a value; one with spaces or signs, or one of and, or, not, in, must be quoted")
        try:
            value = field.parse(token.text)
        except ValueError as error:
            self._refuse(str(error))
        self._next += 1
        return value

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _accept(self, text: str) -> bool:
        token = self._peek()
        matches = token.kind in ("word", "sign") and token.text.lower() == text
        self._next += matches
        return matches

    def _require(self, text: str) -> None:
        if not self._accept(text):
            self._refuse(f"must be {text!r}")

    def _refuse(self, rule: str, token: Token | None = None) -> NoReturn:
        refused = token or self._peek()
        raise _error(refused.position, refused.text if refused.kind != "end" else "the end", rule)


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    while at <= len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            start = at + len(text[at:]) - len(text[at:].lstrip())
            rule = "must be closed by another quote" if text[start] in "'\"" else "must be a field, a value or an operator"
            raise _error(start + 1, text[start : start + 20], rule)
        kind = str(match.lastgroup)
        token = match[kind]
        if kind == "quoted":
            token = token[1:-1].replace(token[0] * 2, token[0])
        yield Token(kind, token, match.start(kind) + 1)
        if kind == "end":
            return
        at = match.end()


def _error(position: int, found: str, rule: str) -> ConfigError:
    return ConfigError("dataset delete", f"--where, position {position}", found, rule)
