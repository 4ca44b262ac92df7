"""Statements of users: what they may consist of, without and with a database."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.elements import quoted_name
from sqlalchemy.types import UserDefinedType

from modyn_dagster.catalog.access.statement_role import STATEMENT
from modyn_dagster.catalog.datasets import sample
from modyn_dagster.data.windows.statements import allowed
from modyn_dagster.data.windows.statements.allowed import Statement, StatementOrigin, statement_of
from modyn_dagster.data.windows.statements.choosing import only_read, packed, require_repeatable
from modyn_dagster.data.windows.statements.window_samples import HELD, VIEW, lend_view, window_samples
from modyn_dagster.errors import ConfigError

Make = Callable[[Any], Any]


class OwnFunction(sa.sql.functions.GenericFunction[Any]):
    """A function that compiles to whatever it likes."""

    inherit_cache = True
    name = "lower"


@compiles(OwnFunction)
def _own_function(element: Any, compiler: Any, **options: Any) -> str:
    return "random()"


class OwnType(UserDefinedType[Any]):
    """A type whose name is text."""

    cache_ok = True

    def get_col_spec(self, **options: Any) -> str:
        return "text) as key, pg_sleep(10"


def parse(make: Make, monkeypatch: pytest.MonkeyPatch) -> Statement:
    monkeypatch.setattr("tests.data.test_statements.statement", make)
    return statement_of(
        StatementOrigin("pipeline shop", "selection.strategy.statement", f"{__name__}:statement"), window_samples()
    )


def lend_samples(conn: sa.Connection, rows: Sequence[Mapping[str, Any]] = ()) -> None:
    """Samples of a window, without attributes."""
    HELD.create(conn)
    if rows:
        conn.execute(sa.insert(HELD), rows)
    lend_view(conn, sa.select(HELD, sa.cast(sa.null(), JSONB).label("attributes")))


statement: Make = lambda samples: sa.select(samples.c.key)  # noqa: E731 - replaced by each test


def keys(samples: Any) -> sa.Select[Any]:
    return sa.select(samples.c.key)


ALLOWED: dict[str, Make] = {
    "all": keys,
    "chance": lambda s: sa.select(s.c.key, sa.literal(0.5).label("chance")),
    "where": lambda s: keys(s).where(s.c.label.in_([1, 2]), s.c.time.is_not(None), ~(s.c.target > 3)),
    "attributes": lambda s: keys(s).where(s.c.attributes["a"].as_float() > 3, s.c.attributes.has_key("b")),
    "case": lambda s: sa.select(s.c.key, sa.case((s.c.label == 1, 0.5), else_=1.0).label("chance")),
    "join": lambda s: keys(s).join(s.alias("other"), sa.true()).distinct(),
    "cte": lambda s: sa.select(sa.select(s).cte("again").c.key),
    "union": lambda s: sa.union(keys(s), keys(s.alias("other"))),
    "exists": lambda s: keys(s).where(sa.exists().where(s.alias("other").c.key > s.c.key)),
    "window": lambda s: (
        sa.select(s.c.key, (1.0 / sa.func.count().over(partition_by=s.c.label)).label("chance"))
        .group_by(s.c.key, s.c.label)
        .having(sa.func.count() > 0)
    ),
    "rank": lambda s: sa.select(s.c.key, (1.0 / sa.func.row_number().over(order_by=(s.c.time.desc(), s.c.key))).label("chance")),
    "frame": lambda s: sa.select(s.c.key, sa.func.avg(s.c.target).over(order_by=s.c.key, rows=(None, 0)).label("chance")),
    "hour": lambda s: keys(s).where(sa.extract("hour", s.c.time).between(3, 5)),
    "order": lambda s: keys(s).order_by(s.c.key.desc().nulls_last()),
    "cast": lambda s: sa.select(s.c.key, sa.cast(s.c.label, sa.Double).label("chance")),
    "filter": lambda s: sa.select(sa.func.max(s.c.key).filter(s.c.label == 1).label("key")),
    "percentile": lambda s: keys(s).where(
        s.c.target > sa.select(sa.func.percentile_cont(0.5).within_group(s.c.target)).scalar_subquery()
    ),
    "operator": lambda s: keys(s).where(s.c.attributes["a"].as_string().op("~")("b+")),
    "coalesce": lambda s: keys(s).where(sa.func.coalesce(s.c.label, 0) == sa.func.greatest(1, 2)),
    "hash": lambda s: keys(s).where(sa.func.hashint8extended(s.c.key, 3) % 10 == 0),
    "contained": lambda s: keys(s).where(s.c.attributes.contains({"a": 1})),
}

UNREPEATABLE: dict[str, tuple[Make, str]] = {
    "volatile": (lambda s: keys(s).where(sa.func.pg_backend_pid() > 1), r"pg_backend_pid\(\) depends"),
    "stable": (lambda s: keys(s).where(sa.func.age(s.c.time) > sa.func.make_interval(1)), r"age\(\) depends"),
    "writes": (lambda s: keys(s).where(sa.func.lo_create(0) > 1), r"lo_create\(\) depends"),
    "reads files": (lambda s: keys(s).where(sa.func.pg_read_file("x") == ""), r"pg_read_file\(\) depends"),
    "unknown": (lambda s: keys(s).where(sa.func.no_such_thing(1) == 1), "no_such_thing is no function of Postgres"),
    "operator": (lambda s: keys(s).where(s.c.key.op("); drop table sample; --")(1)), "the operator .* is none of Postgres"),
}

REFUSED: dict[str, tuple[Make, str]] = {
    "text": (lambda s: keys(s).where(sa.text("true")), "TextClause is not allowed"),
    "text as a select": (lambda s: sa.text("select key from sample"), "must return a select"),
    "literal column": (lambda s: sa.select(sa.literal_column("key").label("key")).select_from(s), "is no column of the samples"),
    "loose column": (lambda s: sa.select(sa.column("key")).select_from(s), "is no column of the samples"),
    "text order": (lambda s: keys(s).order_by("key"), "textual_label_reference"),
    "table": (lambda s: sa.select(sample.c.key), "it reads the table sample"),
    "other table": (lambda s: sa.select(sa.table("pg_class", sa.column("key")).c.key), "it reads the table pg_class"),
    "table in a condition": (lambda s: keys(s).where(s.c.key == sample.c.key), "it reads the table sample"),
    "table below": (lambda s: keys(s).where(s.c.key.in_(sa.select(sample.c.key))), "it reads the table sample"),
    "limit": (lambda s: keys(s).limit(5), "LIMIT takes what Postgres finds first"),
    "limit below": (lambda s: sa.select(keys(s).limit(5).subquery().c.key), "LIMIT takes what Postgres finds first"),
    "offset": (lambda s: keys(s).offset(5), "OFFSET"),
    "fetch": (lambda s: keys(s).fetch(5), "FETCH"),
    "union limit": (lambda s: sa.union(keys(s), keys(s)).limit(3), "LIMIT"),
    "distinct on": (lambda s: keys(s).distinct(s.c.label), "DISTINCT ON"),
    "for update": (lambda s: keys(s).with_for_update(), "FOR UPDATE"),
    "prefix": (lambda s: keys(s).prefix_with("ALL"), "prefixes are text"),
    "hint": (lambda s: keys(s).with_statement_hint("x"), "hints are text"),
    "random": (lambda s: keys(s).where(sa.func.random() < 0.5), r"random\(\) depends on more than its arguments"),
    "now": (lambda s: keys(s).where(s.c.time < sa.func.now()), r"now\(\) depends"),
    "clock": (lambda s: keys(s).where(s.c.time < sa.func.clock_timestamp()), r"clock_timestamp\(\) depends"),
    "current": (lambda s: keys(s).where(s.c.time < sa.func.current_timestamp()), r"current_timestamp\(\) depends"),
    "sleep": (lambda s: keys(s).where(sa.func.pg_sleep(3).is_(None)), r"pg_sleep\(\) depends"),
    "package": (lambda s: keys(s).where(sa.func.mine.random() < 0.5), r"mine\.random is no function of Postgres"),
    "capitals": (lambda s: keys(s).where(sa.func.RANDOMLY() < 0.5), "RANDOMLY is no function"),
    "rows": (lambda s: sa.select(sa.func.generate_series(1, 3).table_valued("key").c.key), "TableValuedAlias"),
    "values": (
        lambda s: sa.select(sa.values(sa.column("key", sa.Integer), name="v").data([(1,)]).c.key),
        "Values is not allowed",
    ),
    "lateral": (lambda s: sa.select(keys(s).lateral("l").c.key), "Lateral is not allowed"),
    "unordered": (
        lambda s: sa.select(s.c.key, sa.func.row_number().over().label("chance")),
        "numbers rows as Postgres finds them",
    ),
    "own function": (lambda s: keys(s).where(OwnFunction() < 0.5), "no element of SQLAlchemy itself"),
    "own type": (lambda s: keys(s).where(sa.cast(s.c.label, OwnType()) == 1), "OwnType is none of SQLAlchemy"),
    "unquoted": (lambda s: sa.select(s.c.key, s.c.label.label(quoted_name("chance", quote=False))), "not quoted"),
    "columns": (lambda s: sa.select(s.c.key, s.c.label), "must select `key`, and maybe `chance`, not key, label"),
    "no key": (lambda s: sa.select(s.c.label), "must select `key`"),
    "insert": (lambda s: sa.insert(sample), "must return a select of SQLAlchemy, not Insert"),
    "nothing": (lambda s: None, "not NoneType"),
    "fails": (lambda s: s.c.nothing, "failed on the samples of a window: AttributeError"),
}


@pytest.mark.parametrize("make", ALLOWED.values(), ids=ALLOWED)
def test_parts_that_are_allowed(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    parse(make, monkeypatch)


@pytest.mark.parametrize(("make", "rule"), REFUSED.values(), ids=REFUSED)
def test_parts_that_are_refused(make: Make, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=rf"pipeline shop: selection\.strategy\.statement: .*{rule}"):
        parse(make, monkeypatch)


def test_everything_allowed_runs_in_postgres(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = StatementOrigin("pipeline shop", "selection.strategy.statement", "shop:mine")
    for make in ALLOWED.values():
        found = parse(make, monkeypatch)
        with engine.connect() as conn:
            require_repeatable(conn, found, origin)
            lend_samples(conn)
            only_read(conn, 10)
            conn.execute(packed(found)).all()
            with pytest.raises(sa.exc.DBAPIError, match="does not exist"):
                conn.execute(sa.update(sample).values(label=1))


@pytest.mark.parametrize(("make", "rule"), UNREPEATABLE.values(), ids=UNREPEATABLE)
def test_functions_and_operators_that_postgres_knows_better(
    make: Make, rule: str, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = parse(make, monkeypatch)
    with engine.connect() as conn, pytest.raises(ConfigError, match=rule):
        require_repeatable(conn, found, StatementOrigin("pipeline shop", "selection.strategy.statement", "shop:mine"))


def test_many_keys_come_as_few_values(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = parse(ALLOWED["chance"], monkeypatch)
    rows = [{"key": key, "time": "2024-01-01"} for key in (*range(5), 1 << 22, (1 << 32) + 3)]
    with engine.connect() as conn:
        lend_samples(conn, rows)
        values = conn.execute(packed(found)).tuples().all()
    assert sorted((n, len(value)) for n, value in values) == [(1, 16), (1, 16), (5, 80)]


def test_functions_of_the_grammar_are_none_of_the_catalog(engine: sa.Engine) -> None:
    functions = sa.table("pg_proc", sa.column("proname"))
    with engine.connect() as conn:
        listed = conn.scalars(sa.select(functions.c.proname).where(functions.c.proname.in_(sorted(allowed.GRAMMAR)))).all()
    assert listed == []


#: Statements that Postgres refuses to the role by itself, whatever our own checks say, and its words.
OUTSIDE = {
    "another table": ("select count(*) from public.sample", "permission denied for schema public"),
    "another table by its bare name": ("select count(*) from batch", 'relation "batch" does not exist'),
    "the table below the view": ("select count(*) from window_sample", "permission denied for table window_sample"),
    "passwords": ("select rolpassword from pg_authid", "permission denied for table pg_authid"),
    "insert": ("insert into window_samples (key) values (1)", "permission denied for view|read-only transaction"),
    "update": ("update public.sample set label = 1", "permission denied for schema public"),
    "create": ("create table pg_temp.mine (n int)", "read-only transaction"),
    "next number": ("select nextval('public.batch_id_seq')", "permission denied for schema public"),
    "file": ("select pg_read_file('/etc/passwd')", "permission denied for function pg_read_file"),
    "folder": ("select pg_ls_dir('/')", "permission denied for function pg_ls_dir"),
    "large object": ("select lo_import('/etc/passwd')", "permission denied for function lo_import|read-only transaction"),
    "program": ("copy (select 1) to program 'id'", "permission denied to COPY"),
    "log": ("select pg_rotate_logfile()", "permission denied for function pg_rotate_logfile"),
}


@pytest.mark.parametrize(("text", "words"), OUTSIDE.values(), ids=OUTSIDE)
def test_postgres_itself_refuses_the_role_of_statements_all_but_the_samples(text: str, words: str, engine: sa.Engine) -> None:
    with engine.connect() as conn:
        lend_samples(conn, [{"key": 1, "time": "2024-01-01"}])
        only_read(conn, 10)
        assert conn.execute(sa.select(VIEW.c.key)).scalars().all() == [1]
        with pytest.raises(sa.exc.DBAPIError, match=words):
            conn.exec_driver_sql(text)


def test_neither_the_loan_nor_the_role_outlives_the_transaction(engine: sa.Engine) -> None:
    with engine.connect() as conn:
        lend_samples(conn)
        writer = conn.exec_driver_sql("select current_user").scalar_one()
        only_read(conn, 10)
        assert conn.exec_driver_sql("select current_user").scalar_one() == STATEMENT
        conn.rollback()
        assert conn.exec_driver_sql("select current_user").scalar_one() == writer
        with pytest.raises(sa.exc.ProgrammingError, match="does not exist"):
            conn.execute(sa.select(VIEW.c.key))


@pytest.mark.parametrize("name", ["random", "clock_timestamp", "pg_sleep", "set_config", "pg_read_file", "nextval", "lo_import"])
def test_functions_that_do_or_depend_on_more_are_refused_by_name_or_by_what_postgres_knows_of_them(
    name: str, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = StatementOrigin("pipeline shop", "selection.strategy.statement", "shop:mine")
    own = lambda s: sa.select(s.c.key).where(getattr(sa.func, name)("1") == "1")  # noqa: E731
    with pytest.raises(ConfigError, match=name), engine.connect() as conn:
        require_repeatable(conn, parse(own, monkeypatch), origin)
    with engine.connect() as conn, pytest.raises(ConfigError, match=name):
        require_repeatable(conn, Statement(sa.select(VIEW.c.key), frozenset({name}), frozenset()), origin)
