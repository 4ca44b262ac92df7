"""Versions of models that saw deleted samples: tagged, and without the aliases of the models in service."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from modyn_dagster.reporting.mlflow.client import address_of, tracking_errors
from modyn_dagster.reporting.mlflow.registry.registered_models import DIGEST_TAG
from modyn_dagster.reporting.mlflow.registry.versions import MODEL, TRIGGER, TRIGGER_BEFORE

if TYPE_CHECKING:
    from mlflow import MlflowClient

#: Tag of a version whose model saw deleted samples; the value names the request.
DELETED_SAMPLES: Final = "modyn/deleted_samples"


def mark_withdrawn(client: MlflowClient, pipeline: str, models: Collection[str], because: str) -> int:
    """Tag the versions of a pipeline's models, take their aliases away, and let the next sync register new ones.

    A version loses the tag that names its trigger, which has another model now or none. Returns the number of versions. A
    second call changes nothing. Raises ``TrackingError`` when MLflow is down.
    """
    n_versions = 0
    with tracking_errors(address_of(client.tracking_uri)):
        for name in (pipeline, f"{pipeline}.replay"):
            for registered in client.search_registered_models(f"name = '{name}'", max_results=1):
                # The digests of verdicts stand for versions that are all there.
                for tag in [tag for tag in registered.tags if tag.startswith(f"{DIGEST_TAG}/")]:
                    client.delete_registered_model_tag(name, tag)
                for version in client.search_model_versions(f"name = '{name}'"):
                    if version.tags.get(MODEL) not in models:
                        continue
                    n_versions += 1
                    client.set_model_version_tag(name, version.version, DELETED_SAMPLES, because)
                    if TRIGGER in version.tags:
                        client.set_model_version_tag(name, version.version, TRIGGER_BEFORE, version.tags[TRIGGER])
                        client.delete_model_version_tag(name, version.version, TRIGGER)
                    for alias in [alias for alias, of in registered.aliases.items() if str(of) == str(version.version)]:
                        client.delete_registered_model_alias(name, alias)
    return n_versions
