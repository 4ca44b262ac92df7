"""The job that cleans up the model store, and a schedule for it that somebody may switch on."""

import dagster as dg

from modyn_dagster.resources.model_store import ModelStoreResource


@dg.op(description="Remove what killed writers left in the model store, and documents no model refers to.")
def collect_garbage(context: dg.OpExecutionContext, modyn_model_store: ModelStoreResource) -> None:
    """Models stay, whatever else goes."""
    removed = models = 0
    for store in modyn_model_store.every_store():
        gone, stay = len(store.gc()), len(store.list())
        context.log.info(f"{store.root}: removed {gone} files; {stay} models stay")
        removed, models = removed + gone, models + stay
    context.add_output_metadata({"removed": removed, "models": models})


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
