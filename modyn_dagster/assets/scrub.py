"""The job ``scrub``, which verifies a whole home at a bounded rate, and its schedule."""

from typing import Any

import dagster as dg
from pydantic import Field

from modyn_dagster.resources.platform import PlatformResource

#: Findings that the run shows as a table; its log has all.
_MOST_SHOWN = 200


class ScrubConfig(dg.Config):
    """Rate of a scrub."""

    rate: float = Field(50.0, description="Megabytes to read per second, at most.")


@dg.op(description="Read everything that the catalog names, and compare it with its checksum.")
def verify_home(context: dg.OpExecutionContext, config: ScrubConfig, modyn: PlatformResource) -> None:
    """Verify the home; fails, with the findings as a table, when a file is damaged or missing."""
    from modyn_dagster.pipeline.integrity.pacing import Pace
    from modyn_dagster.pipeline.integrity.scope import Scope
    from modyn_dagster.pipeline.integrity.verification import verify

    platform, pace, findings = modyn.platform(), Pace(config.rate * 1e6), []
    for finding in verify(platform, Scope.of(platform), pace):
        findings.append(finding)
        (context.log.error if finding.is_fault else context.log.info)(finding.line)
    columns = ("state", "kind", "path", "owner", "fault", "remedy")
    faults = [finding for finding in findings if finding.is_fault]
    shown = [*faults, *(finding for finding in findings if not finding.is_fault)][:_MOST_SHOWN]
    records = [dg.TableRecord({name: getattr(finding, name) for name in columns}) for finding in shown]
    schema = dg.TableSchema([dg.TableColumn(name) for name in columns])
    metadata: dict[str, dg.MetadataValue[Any]] = {
        "damaged_or_missing": dg.MetadataValue.int(len(faults)),
        "other_findings": dg.MetadataValue.int(len(findings) - len(faults)),
        "bytes_read": dg.MetadataValue.int(pace.n_bytes),
        "findings": dg.MetadataValue.table(records, schema),
    }
    if faults:
        remedy = "`modyn-dagster repair` makes again what is derived, and names the backup for the rest"
        raise dg.Failure(f"{len(faults)} files are damaged or missing; {remedy}", metadata=metadata, allow_retries=False)
    context.add_output_metadata(metadata)


@dg.job(
    description="Verify every index, shard, source file, training set, prediction file and model.",
    executor_def=dg.in_process_executor,
)
def scrub() -> None:
    """Launch it by hand, or switch on the schedule."""
    verify_home()


#: Weekly, once somebody switches it on.
scrub_schedule = dg.ScheduleDefinition(
    name="scrub_weekly",
    job=scrub,
    cron_schedule="0 5 * * 0",
    description="Verify everything below MODYN_HOME, and the source files, every week.",
)
