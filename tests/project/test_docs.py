"""Documentation that holds together: links lead somewhere, pages can be reached, commands and variables are the real ones."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from modyn_dagster import settings
from modyn_dagster.cli import main
from modyn_dagster.spec.load import parse_spec
from modyn_dagster.spec.pipeline import PipelineSpec

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def links(page: Path) -> Iterator[str]:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith(("#", "mailto:")):
            yield target


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for child in command.list_commands(context):
        found = command.get_command(context, child)
        assert found is not None
        yield from commands(found, f"{name} {child}".strip())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve()
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_page_of_docs_is_in_its_index() -> None:
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert [page.name for page in PAGES if page.parent == index.parent and page != index and page not in listed] == []


def test_the_page_on_the_command_line_names_every_command_and_option() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    missing = []
    for name, command in commands(main, ""):
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        missing += [part for part in (name, *options) if f"`{part}" not in text]
    assert missing == []


def test_the_page_on_the_command_line_names_every_variable() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    variables = re.findall(r"^(MODYN_\w+)", settings.__doc__ or "", re.MULTILINE)
    assert len(variables) >= 5
    assert [variable for variable in variables if f"`{variable}`" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pipelines_shown_in_documentation_are_valid(page: Path) -> None:
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        content = yaml.safe_load(block)
        if isinstance(content, dict) and {"trigger", "training", "evaluation"} <= set(content):
            parse_spec(content, PipelineSpec, source=str(page.relative_to(ROOT)))
