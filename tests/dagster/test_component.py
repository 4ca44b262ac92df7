from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing import create_defs_folder_sandbox

from modyn_dagster import build_definitions
from modyn_dagster.assets.translator import AssetProps, ModynTranslator
from modyn_dagster.component import ModynComponent


class Prefixed(ModynTranslator):
    def get_asset_spec(self, props: AssetProps) -> dg.AssetSpec:
        spec = super().get_asset_spec(props)
        return spec.replace_attributes(key=spec.key.with_prefix("ct"))


class PrefixedComponent(ModynComponent):
    def translator(self) -> ModynTranslator:
        return Prefixed()


def names(defs: dg.Definitions) -> tuple[set[str], set[str], set[str]]:
    return (
        {spec.key.to_user_string() for spec in defs.resolve_all_asset_specs()},
        {sensor.name for sensor in defs.sensors or []},
        {job.name for job in defs.jobs or []},
    )


def loaded(component: type[ModynComponent], project: Path) -> tuple[set[str], set[str], set[str]]:
    """Definitions of a Dagster project with one ``defs.yaml``."""
    content = {"type": f"{component.__module__}.{component.__name__}", "attributes": {"project": str(project)}}
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=component, defs_path="training", defs_yaml_contents=content)
        with sandbox.load_component_and_build_defs(defs_path=path) as (found, defs):
            assert isinstance(found, component)
            dg.Definitions.validate_loadable(defs)
            return names(defs)


# Dagster's own parser of defs.yaml.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")
def test_a_component_gives_the_same_definitions(project: Path) -> None:
    assert loaded(ModynComponent, project) == names(build_definitions(project))


def test_a_relative_folder_is_looked_for_from_the_components_own(project: Path) -> None:
    context = dg.ComponentTree.for_test().load_context.for_path(project.parent / "defs")
    assert names(ModynComponent("../project").build_defs(context)) == names(build_definitions(project))


def test_a_subclass_changes_keys(project: Path) -> None:
    context = dg.ComponentTree.for_test().load_context
    assets, _, _ = names(PrefixedComponent(str(project)).build_defs(context))
    assert assets == {f"ct/{key}" for key in names(build_definitions(project))[0]}
