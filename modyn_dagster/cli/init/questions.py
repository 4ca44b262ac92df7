"""Choice of the columns of a user's data: by options, by guesses, and at a terminal by questions."""

from collections.abc import Sequence
from typing import Final, NamedTuple, cast

import click

from modyn_dagster.cli.init.content import Columns
from modyn_dagster.cli.init.look import Look, listed, refused
from modyn_dagster.cli.init.roles import LabelKind, choose_label, features, id_guess, label_guess, require_id
from modyn_dagster.cli.init.times import best_named, choose_time, time_columns

#: Answer that no column is the id.
_NONE: Final = "(none)"


class Asked(NamedTuple):
    """Options about the columns of a file; None where they are to be guessed."""

    time: str | None
    time_format: str | None
    label: str | None
    label_kind: str | None
    id: str | None


def choose_columns(look: Look, project: str, asked: Asked, *, ask: bool) -> Columns:
    """Choose time, label, id and features.

    Args:
        look: at the data.
        project: its name.
        asked: options of the command.
        ask: about everything that no option says; the guess is the default answer.

    Raises ``ConfigError``, naming column and option, for what is impossible or cannot be told.
    """
    if look.n_rows < 2:
        raise refused("--from", str(look.root), "has one row only: give data with at least two, better some hundred")
    _require_different(asked)
    time_name = asked.time
    if time_name is None and ask and (found := [*time_columns(look)]):
        best = best_named(found)
        time_name = _answer("time", found, best[0] if len(best) == 1 else None)
    time = choose_time(look, time_name, asked.time_format)
    taken = [time.column, *([asked.id] if asked.id is not None else [])]
    label_name = asked.label
    if label_name is None and ask:
        rest = [name for name in look.names if name not in taken]
        label_name = _answer("label", rest, label_guess(look, taken)) if rest else None
    label = choose_label(look, label_name, cast("LabelKind | None", asked.label_kind), taken)
    id, reason = _id(look, project, asked.id, [time.column, label.column], ask=ask)
    roles = [time.column, label.column, *([] if id is None else [id])]
    left = features(look, roles)
    if not (left.numbers or left.categories or left.texts):
        rule = f"has no column to learn from beside {listed([*roles, *left.naming])}: add columns of numbers or text"
        raise refused("--from", str(look.root), rule)
    return Columns(time, label, id, reason, *left)


def _id(look: Look, project: str, given: str | None, taken: Sequence[str], *, ask: bool) -> tuple[str | None, str]:
    if given is not None:
        require_id(look, given, taken)
        return given, "named by --id"
    guess = id_guess(look, project, taken)
    if ask:
        answer = _answer("id", [_NONE, *(name for name in look.names if name not in taken)], guess or _NONE)
        if answer == _NONE:
            return None, "none"
        require_id(look, answer, taken)
        return answer, "as answered"
    if guess is None:
        return None, "none, as no column is called so and has another value in every row"
    return guess, "its name says so, and it has another value in every row looked at"


def _require_different(asked: Asked) -> None:
    """Refuse one column in two options."""
    given = [(option, value) for option, value in (("--time", asked.time), ("--label", asked.label), ("--id", asked.id))]
    for i, (option, value) in enumerate(given):
        if value is not None and value in [other for _, other in given[:i]]:
            raise refused(option, value, f"column {value!r} has another role already: name another with {option}")


def _answer(role: str, columns: Sequence[str], default: str | None) -> str:
    """Ask for a column by its number, as names may hold anything; one that was guessed is the default."""
    for number, name in enumerate(columns):
        click.echo(f"  {number}: {name if name == _NONE else repr(name)}", err=True)
    number = click.prompt(
        f"Column of the {role}",
        type=click.IntRange(0, len(columns) - 1),
        default=None if default is None else columns.index(default),
        err=True,
    )
    return columns[int(number)]
