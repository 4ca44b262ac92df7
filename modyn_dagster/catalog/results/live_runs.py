"""Runs that are live: of the runs of a pipeline, the one whose model went live last."""

import sqlalchemy as sa

from modyn_dagster.catalog.results.models import model
from modyn_dagster.catalog.results.promotions import follows_champion, promotion
from modyn_dagster.catalog.runs import RunRow, pipeline_run, pipeline_spec
from modyn_dagster.catalog.triggers import trigger


def last_live_run(conn: sa.Connection, run: RunRow) -> int | None:
    """Id of the run whose model went live last, of the same pipeline and mode as a run; None where no model was live yet.

    A model goes live when it is trained, or where the champion is live, when it is promoted. Of two runs at the same moment the
    later one counts.
    """
    own = (pipeline_run.c.pipeline_id == run.pipeline_id) & (pipeline_run.c.mode == run.mode)
    crowned = sa.select(promotion.c.run_id, promotion.c.created_at)
    crowned = crowned.join(pipeline_run, promotion.c.run_id == pipeline_run.c.id).join(pipeline_spec)
    crowned = crowned.where(own & follows_champion() & (promotion.c.state == "champion"))
    trained = sa.select(trigger.c.run_id, model.c.created_at).join(trigger, model.c.trigger_id == trigger.c.id)
    trained = trained.join(pipeline_run, trigger.c.run_id == pipeline_run.c.id).join(pipeline_spec)
    went = sa.union_all(crowned, trained.where(own & ~follows_champion())).subquery()
    statement = sa.select(went.c.run_id).order_by(went.c.created_at.desc(), went.c.run_id.desc()).limit(1)
    return conn.execute(statement).scalar_one_or_none()
