"""The job that cleans up the model store, and a schedule for it that somebody may switch on."""

import dagster as dg

from modyn_dagster.assets.progress import log_counts
from modyn_dagster.resources.model_store import ModelStoreResource


@dg.op(description="Remove what killed writers left in the model store, and documents no model refers to.")
def collect_garbage(context: dg.OpExecutionContext, modyn_model_store: ModelStoreResource) -> None:
    """Models stay, whatever else goes."""
    from modyn_dagster.errors import ModynError

    removed, models = 0, set[str]()
    failed = []
    for store in (stores := modyn_model_store.every_store()):
        try:
            gone = len(store.gc(progress=log_counts(context.log.info, f"{store.root}: models looked at")))
            stay = store.list()
        except (ModynError, OSError) as error:
            context.log.error(f"{store.root}: {error}")
            failed.append(f"{store.root}: {error}")
            continue
        context.log.info(f"{store.root}: removed {gone} files; {len(stay)} models stay")
        removed, models = removed + gone, models.union(stay)
    if failed:
        remedy = "Models are as they were; put right what is named, and launch the job again."
        raise dg.Failure(f"{len(failed)} of {len(stores)} model stores could not be cleaned up. {'; '.join(failed)}. {remedy}")
    context.add_output_metadata({"removed": removed, "models": len(models)})


@dg.job(description="Clean up the model store.", executor_def=dg.in_process_executor)
def model_store_gc() -> None:
    """Launch it by hand, or switch on the schedule."""
    collect_garbage()


#: Nightly, once somebody switches it on.
model_store_gc_schedule = dg.ScheduleDefinition(
    name="model_store_gc_nightly",
    job=model_store_gc,
    cron_schedule="0 4 * * *",
    description="Clean up the model store every night.",
)
