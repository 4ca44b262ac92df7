"""A bar for what may take long, on standard error; nothing where that is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(title: str, *, counted: bool = True) -> Iterator[Callable[[int, int], None]]:
    """Yields what is told how many of how many are done; one that is not ``counted`` only shows that, and how long, it works."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    numbers = (MofNCompleteColumn(), TimeRemainingColumn()) if counted else (TimeElapsedColumn(),)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), *numbers)
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
