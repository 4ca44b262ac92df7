"""``modyn-dagster dataset delete --report`` and ``dataset verify-deletion``: the signed report of a deletion."""

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from modyn_dagster.cli.console import say
from modyn_dagster.cli.project import open_platform
from modyn_dagster.progress import progress_bar

if TYPE_CHECKING:
    from modyn_dagster.pipeline.operate.deletion.report.scan import Finding, Scan
    from modyn_dagster.pipeline.platform import Platform

#: Exit code when a report was changed, or signed by another key: none of errors, of wrong usage or of Ctrl-C.
CHANGED: Final = 3
#: Exit code when the report is what was signed, and a file below the home holds bytes of the samples.
STILL_THERE: Final = 4
#: Exit code when nothing was found in what could be read, but that was not everything.
UNKNOWN: Final = 1


def report_deletion(platform: "Platform", name: str, request: int, output: Path | None) -> None:
    """Write the report of a finished request to a folder, and print what was found.

    The exit code is 4 for bytes below the home, and 1 if none were found, but not everything could be read.
    """
    from modyn_dagster.pipeline.operate.deletion.report.writing import report_folder, write_report
    from modyn_dagster.reporting.page.deletion import deletion_page

    folder = (output or report_folder(platform.settings.home, request)).resolve()
    with progress_bar(f"search for samples of {name}") as show:
        content = write_report(platform, platform.view(name).row, request, folder, deletion_page, show)
    found = [each for each in content["scan"]["findings"] if each["state"] != "shared"]
    for each in found:
        say(f"{each['state']}: {each['kind']} {each['path']}: {each['n_samples']} samples at {each['n_places']} places", err=True)
    for each in content["scan"]["unread"]:
        say(_unread(each["path"], each["reason"]), err=True)
    say(f"report: {folder} (report.html for printing, report.json, signed by {content['signed_by'][:16]}…)")
    _exit(is_found=any(each["state"] == "found" for each in found), is_whole=not content["scan"]["unread"])


@click.command("verify-deletion")
@click.argument("report", type=click.Path(path_type=Path))
@click.option("--key", "key_file", type=click.Path(path_type=Path), help="Public key to trust; default: that of MODYN_HOME.")
@click.option("--no-scan", is_flag=True, help="Only compare the report with its signature; needs no database.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify_deletion(report: Path, key_file: Path | None, no_scan: bool, as_json: bool) -> None:
    """Compare REPORT, a folder or a file in it, with its signature, and search again for the bytes of the samples.

    The exit code is 0 if the report is what was signed and no file below MODYN_HOME holds bytes of the samples; 3 if a file of
    the report was changed, is missing, or was signed by another key; 4 if bytes were found; 1 if the search cannot be made, or
    a file or table could not be read and nothing was found in the others.
    Originals outside of MODYN_HOME that hold the samples are named, and do not change the exit code.
    """
    from modyn_dagster.errors import ReportChanged
    from modyn_dagster.pipeline.operate.deletion.report.signing import home_key, public_key
    from modyn_dagster.pipeline.operate.deletion.report.writing import scan_again, verify_report
    from modyn_dagster.settings import Settings

    key = public_key(key_file) if key_file is not None else home_key(Settings.from_environment().home)
    try:
        verified = verify_report(report, key)
    except ReportChanged as error:
        if as_json:
            click.echo(json.dumps({"intact": False, "fault": str(error)}, indent=2))
        else:
            say(f"changed: {error}", err=True)
        raise click.exceptions.Exit(CHANGED) from None
    if no_scan:
        _show(None, as_json=as_json)
        return
    with closing(open_platform()) as platform, progress_bar("search for the samples") as show:
        result = scan_again(platform, verified, show)
    _show(result, as_json=as_json)
    _exit(is_found=bool(result.found("found")), is_whole=not result.unread)


def _exit(*, is_found: bool, is_whole: bool) -> None:
    """End with the exit code of a search: where not everything was read, nobody knows that nothing is there."""
    if is_found:
        raise click.exceptions.Exit(STILL_THERE)
    if not is_whole:
        say("it cannot be told whether bytes of the samples are left: not everything could be read", err=True)
        raise click.exceptions.Exit(UNKNOWN)


def _show(result: "Scan | None", *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"intact": True, "scan": None if result is None else result.to_json()}, indent=2))
        return
    say("the report is what was signed")
    if result is None:
        return
    for finding in [*result.found("found"), *result.found("original")]:
        say(_line(finding), err=True)
    for path, reason in result.unread:
        say(_unread(path, reason), err=True)
    n_bytes, n_files = sum(result.n_bytes.values()), sum(result.n_files.values())
    rate = n_bytes / max(result.seconds, 1e-9) / 1e9
    say(f"{n_files} files, {n_bytes:,} bytes searched ({rate:.2f} GB/s): bytes in {len(result.found('found'))} of ours")


def _unread(path: str, reason: str) -> str:
    return f"not read: {path}: {reason}"


def _line(finding: "Finding") -> str:
    offsets = ", ".join(map(str, finding.offsets))
    where = f"{finding.n_samples} samples at {finding.n_places} places, from byte {offsets}"
    return f"{finding.state}: {finding.kind} {finding.path}: {where}"
