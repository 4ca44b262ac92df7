"""Roles of the embedded server: made at its start, and given the databases that the superuser of an early version owned."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict
from typing import Final

from psycopg2 import extensions, sql

from modyn_dagster.catalog.access.roles import DATABASES, EMBEDDED, DatabaseName, grant_rights
from modyn_dagster.catalog.access.statement_role import make_statement_role

#: Connects the superuser to a database.
Connect = Callable[[str], extensions.connection]

_MAKE: Final = sql.SQL("create role {role} nosuperuser nocreaterole noreplication login")
_EXISTING: Final = "select rolname from pg_roles where rolname = any(%s)"
#: Alike for every role but the right to make databases, which the owner has.
_RESET: Final = sql.SQL("alter role {role} nosuperuser nocreaterole {databases} login password {password}")
_OWNED_DATABASES: Final = """
select datname from pg_database where not datistemplate and datname <> 'postgres' and pg_get_userbyid(datdba) = current_user
"""
#: Tables and views take their indexes and sequences along; a sequence of its own is the only other relation.
_OWNED_RELATIONS: Final = """
select c.relname, c.relkind = 'S' from pg_class c
where c.relnamespace = 'public'::regnamespace and pg_get_userbyid(c.relowner) = current_user
  and (c.relkind in ('r', 'p', 'v', 'm', 'f')
       or c.relkind = 'S' and not exists (select from pg_depend d where d.objid = c.oid and d.deptype in ('a', 'i')))
order by c.oid
"""
_OWNED_FUNCTION: Final = """
select from pg_proc
where oid = to_regprocedure('public.add_sample_partition(integer)') and pg_get_userbyid(proowner) = current_user
"""
_GIVE_FUNCTION: Final = sql.SQL("alter function public.add_sample_partition(integer) owner to {role}")


def new_password() -> str:
    """A password of 192 random bits."""
    return secrets.token_urlsafe(24)


def new_passwords() -> dict[str, str]:
    """Passwords of the three roles, by role."""
    return {role: new_password() for role in asdict(EMBEDDED)}


def set_up_roles(connect: Connect, passwords: Mapping[str, str]) -> None:
    """Make the roles and hand over the superuser's databases, so that nobody works as superuser; a second call changes nothing.

    Every database is handed over in one transaction: a start that is cut off is continued by the next.
    """
    with closing(connect("postgres")) as connection, connection, connection.cursor() as cursor:
        names = asdict(EMBEDDED)
        cursor.execute(_EXISTING, ([*names.values()],))
        present = {name for (name,) in cursor.fetchall()}
        for role, name in names.items():
            if name not in present:
                cursor.execute(_MAKE.format(role=sql.Identifier(name)))
            databases = sql.SQL("createdb" if role == "owner" else "nocreatedb")
            # Hashed here: the server's log shows statements that fail.
            verifier = extensions.encrypt_password(passwords[role], name, scope=connection, algorithm="scram-sha-256")
            parts = {"role": sql.Identifier(name), "databases": databases, "password": sql.Literal(verifier)}
            cursor.execute(_RESET.format(**parts))
        make_statement_role(cursor, EMBEDDED.writer)
        cursor.execute(_OWNED_DATABASES)
        owned = [database for (database,) in cursor.fetchall()]
    for database in owned:
        # The names begin with a prefix of the project's choice; other databases of a user stay as they are.
        name = next((name for name in DATABASES if database.endswith(name)), None)
        if name is not None:
            with closing(connect(database)) as connection, connection, connection.cursor() as cursor:
                _hand_over(cursor, name, database)


def _hand_over(cursor: extensions.cursor, name: DatabaseName, database: str) -> None:
    tables_to = EMBEDDED.owner if name == "modyn" else EMBEDDED.writer
    cursor.execute(_OWNED_RELATIONS)
    for relation, is_sequence in cursor.fetchall():
        statement = sql.SQL("alter {kind} public.{relation} owner to {role}")
        kind = sql.SQL("sequence" if is_sequence else "table")
        cursor.execute(statement.format(kind=kind, relation=sql.Identifier(relation), role=sql.Identifier(tables_to)))
    owner = sql.Identifier(EMBEDDED.owner)
    cursor.execute(_OWNED_FUNCTION)
    if cursor.fetchone() is not None:
        cursor.execute(_GIVE_FUNCTION.format(role=owner))
    cursor.execute(sql.SQL("alter database {} owner to {}").format(sql.Identifier(database), owner))
    grant_rights(cursor, name, database, EMBEDDED)
