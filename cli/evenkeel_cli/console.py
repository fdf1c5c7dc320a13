"""Lines and tables for people, as wide as their terminal."""

import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Timer

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from evenkeel.domain.model.values import printable
from evenkeel_cli.terminal import Output, say

# Widths in columns. A console narrower than the first gets the second. Many containers and CI runs report 0 columns.
_NARROWEST, _USUAL, _UNLIMITED = 10, 80, 10_000
_PROGRESS_AFTER_SECONDS = 2.0


class _Console(Console):
    """A console that raises BrokenPipeError for a closed pipe. rich would exit with 1."""

    def on_broken_pipe(self) -> None:
        raise  # rich calls it while it handles the error


def terminal(form: Output = Output.TABLE, *, err: bool = False) -> Console:
    """Return a console for standard output or, with ``err``, for standard error.

    It is 80 columns wide if the reported width is implausible. For the form ``wide``, no line is too long for it.
    """
    console = _Console(width=_UNLIMITED, stderr=err) if form is Output.WIDE else _Console(stderr=err)
    return console if console.width >= _NARROWEST else _Console(width=_USUAL, stderr=err)


def print_line(console: Console, text: str | Text, style: str = "") -> None:
    """Print a line, which wraps at words on a terminal. In a pipe or file it stays one line, without a style."""
    line = cell(text, style) if isinstance(text, str) else text
    if console.is_terminal:
        console.print(line)
    else:
        print(line.plain, file=console.file)


def cell(text: str, style: str = "") -> Text:
    """Return a text for a table, or for a line of a console."""
    return Text(printable(text), style=style)


class Table:
    """A table without a frame, which would take space from names and is noise in a pipe."""

    def __init__(self, headings: Iterable[str], right: Container[str] = ()) -> None:
        """Create a table with its headings. ``right``: the headings of the columns that are aligned to the right."""
        headings = [*headings]
        self.right = [heading in right for heading in headings]
        self.rows = [[cell(heading, "table.header") for heading in headings]]

    def add_row(self, *cells: str | Text) -> None:
        """Add a row with a cell per column."""
        self.rows.append([cell(text) if isinstance(text, str) else text for text in cells])


def print_table(console: Console, table: Table) -> None:
    """Print a table. If it is too wide, columns wrap at words. A word is cut only if this is not enough.

    rich makes the widest column narrower, even if this cuts its words and another column has spaces. It also takes
    seconds to lay out the tables of a large plan.
    """
    columns = [*zip(*table.rows, strict=True)]
    widths = _widths(columns, console.width - len(columns) + 1)
    lines: list[Text] = []
    for row in table.rows:
        cells = [_lines(console, *each) for each in zip(row, widths, table.right, strict=True)]
        blank = [Text(" " * width) for width in widths]
        for number in range(max(map(len, cells))):
            parts = (cell[number] if number < len(cell) else space for cell, space in zip(cells, blank, strict=True))
            lines.append(Text(" ").join(parts))
    print_line(console, Text("\n").join(lines))


def _widths(columns: Sequence[Sequence[Text]], space: int) -> list[int]:
    """Return the widths of columns. If they need more than the space, the widest columns become narrower."""
    widths = [max(text.cell_len for text in column) for column in columns]
    if sum(widths) <= space:
        return widths
    longest = [*widths]
    least = [max(cell_len(word) for text in column for word in (text.plain.split() or [""])) for column in columns]
    if sum(least) > space:
        # Words must be cut, and a wide character takes two columns of the terminal.
        least = [max(map(cell_len, {" ", *"".join(text.plain for text in column)})) for column in columns]
    while sum(widths) > max(space, sum(least)):
        may_wrap = [number for number, width in enumerate(widths) if width > least[number]]
        widths[max(may_wrap, key=lambda number: (widths[number], longest[number]))] -= 1
    return widths


def _lines(console: Console, text: Text, width: int, is_right: bool) -> Sequence[Text]:
    """Return the lines of a cell, each as wide as the column."""
    if (gap := width - text.cell_len) < 0:
        return [*text.wrap(console, width, justify="right" if is_right else "left", overflow="fold")]
    line = text.copy()
    line.pad_left(gap) if is_right else line.pad_right(gap)
    return [line]


@contextmanager
def progress(title: str, unit: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar and then a summary, if standard error is a terminal and this takes more than two seconds.

    Yields a function that takes the units that are done by now. ``total`` is None if it is not known.
    """
    console = Console(stderr=True)
    if not console.is_interactive:  # also a terminal that cannot move its cursor
        yield lambda _done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    bar = Progress(*columns, console=console, transient=True)
    task, started = bar.add_task(title, total=total), time.monotonic()
    timer = Timer(_PROGRESS_AFTER_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done: bar.update(task, completed=done)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
    seconds = time.monotonic() - started
    if seconds > _PROGRESS_AFTER_SECONDS:
        of_total = "" if total is None else f" of {total}"
        say(f"{title}: {bar.tasks[0].completed:g}{of_total} {unit} in {seconds:.0f} s", err=True)
