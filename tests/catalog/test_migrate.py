"""The migrations end in the schema that the row classes declare; upgrades are atomic and refuse what they cannot cure."""

import pkgutil
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from modyn_dagster import catalog
from modyn_dagster.catalog import notifications
from modyn_dagster.catalog.database.databases import upgrade
from modyn_dagster.catalog.database.engine import current_revision, require_current_schema, transaction
from modyn_dagster.catalog.database.mapping import metadata
from modyn_dagster.catalog.revisions import MIGRATIONS, head_revision
from modyn_dagster.errors import SchemaOutdated

# Every module of the catalog, so that all tables are in the metadata, whichever tests have run before.
for _module in pkgutil.walk_packages(catalog.__path__, f"{catalog.__name__}."):
    if ".migrations" not in _module.name:
        import_module(_module.name)

# Every fact about our tables that Postgres keeps, column order included, as text; without internal identifiers.
_FACTS = """
select c.relname, a.attnum::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
       pg_get_expr(d.adbin, d.adrelid)
from pg_class c join pg_attribute a on a.attrelid = c.oid left join pg_attrdef d on (d.adrelid, d.adnum) = (c.oid, a.attnum)
where c.relnamespace = 'public'::regnamespace and a.attnum > 0 and c.relname !~ '^alembic_version'
union all
select conrelid::regclass::text, contype::text, conname, pg_get_constraintdef(oid), convalidated, null, null
from pg_constraint where connamespace = 'public'::regnamespace and conrelid::regclass::text <> 'alembic_version'
union all
select relname, 'index', indexrelid::regclass::text, pg_get_indexdef(indexrelid), indisunique, null, null
from pg_index join pg_class c on c.oid = indrelid
where c.relnamespace = 'public'::regnamespace and relname <> 'alembic_version'
union all
select relname, 'partitioned', pg_get_partkeydef(oid), null, null, null, null
from pg_class where relkind = 'p' and relnamespace = 'public'::regnamespace
"""


def facts(engine: sa.Engine) -> list[str]:
    with transaction(engine) as connection:
        return sorted(str(tuple(row)) for row in connection.execute(sa.text(_FACTS)))


def test_alembic_finds_no_difference_between_a_migrated_database_and_the_row_classes(engine: sa.Engine) -> None:
    with transaction(engine) as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_a_migrated_database_equals_one_made_from_the_row_classes_in_every_fact(empty: sa.Engine) -> None:
    with transaction(empty) as connection:
        metadata.create_all(connection)
    created = facts(empty)
    with transaction(empty) as connection:
        metadata.drop_all(connection)
    upgrade(empty)
    assert facts(empty) == created
    assert len(created) > 200


def test_an_upgrade_ends_at_the_head_and_the_next_changes_nothing(empty: sa.Engine) -> None:
    assert current_revision(empty) is None
    with pytest.raises(SchemaOutdated, match="modyn-dagster db upgrade"):
        require_current_schema(empty)
    upgrade(empty)
    assert current_revision(empty) == head_revision()
    require_current_schema(empty)
    before = facts(empty)
    upgrade(empty)
    assert facts(empty) == before


def test_notifications_of_before_there_were_channels_are_of_the_hook(empty: sa.Engine) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    with transaction(empty) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0109")
        for statement in (
            # The rows of a whole run are of no concern here.
            "alter table notification drop constraint fk_notification_run_id_pipeline_run",
            "insert into notification (run_id, event, hook, tries, told_at) values (1, 'trigger 0', 'a.b:c', 1, now())",
        ):
            connection.execute(sa.text(statement))
    upgrade(empty)
    with transaction(empty) as connection:
        [(key, row)] = notifications.notifications(connection, 1).items()
        assert (key, row.hook, row.tries, row.told_at is not None) == (("trigger 0", "hook"), "a.b:c", 1, True)
        assert notifications.begin_try(connection, 1, "trigger 0", "webhook", "https://example.org").number == 1
        assert notifications.begin_try(connection, 1, "trigger 0", "hook", "a.b:c").number == 2


def test_upgrades_at_the_same_time_run_one_after_the_other(empty: sa.Engine) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: upgrade(empty), range(3)))
    require_current_schema(empty)


def test_an_upgrade_that_fails_leaves_nothing_behind(empty: sa.Engine) -> None:
    with transaction(empty) as connection:
        # Stands in the way of a table in the middle of the first migration.
        connection.execute(sa.text("create table training_set (mine integer)"))
    before = facts(empty)
    with pytest.raises(sa.exc.ProgrammingError, match='"training_set" already exists'):
        upgrade(empty)
    assert facts(empty) == before
    assert current_revision(empty) is None


@pytest.mark.parametrize(("revision", "remedy"), [("9999", "update modyn-dagster"), ("0007", "start anew")])
def test_a_database_at_an_unknown_revision_is_not_touched(owner: sa.Engine, revision: str, remedy: str) -> None:
    with transaction(owner) as connection:
        connection.execute(sa.text("update alembic_version set version_num = :revision"), {"revision": revision})
    with pytest.raises(SchemaOutdated, match=rf"revision {revision}.*{remedy}"):
        upgrade(owner)
    assert current_revision(owner) == revision


def test_actions_of_people_in_promotions_of_before_are_named(empty: sa.Engine) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    told = [("champion", "the first model", False), ("champion", "rolled back by hand: a complaint", True)]
    told += [("rejected", "no use", True), ("champion", "it is better", True), ("retired", "rolled back by hand, it said", False)]
    with transaction(empty) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0111")
        connection.execute(sa.text("alter table promotion drop constraint fk_promotion_run_id_pipeline_run"))
        connection.execute(sa.text("alter table promotion drop constraint fk_promotion_trigger_id_trigger"))
        insert = sa.text(
            "insert into promotion (run_id, number, trigger_id, model_hash, state, actor, reason, batch, manual) "
            "values (1, :number, 1, '', :state, 'ann', :reason, 0, :manual)"
        )
        for number, (state, reason, manual) in enumerate(told):
            connection.execute(insert, {"number": number, "state": state, "reason": reason, "manual": manual})
        command.upgrade(config, "0112")
        found = connection.execute(sa.text("select action from promotion order by number")).scalars().all()
    assert found == [None, "rollback", "reject", "promote", None]
