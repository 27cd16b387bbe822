"""Tables as reports print them: a title, names on the left, numbers on the right."""

from __future__ import annotations

from rich import box
from rich.table import Table


def titled(title: str, first: str, *others: str) -> Table:
    """A table of one column of names, which give way where it is narrow, and of columns of
    numbers.
    """
    table = Table(
        title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
        show_edge=False, padding=0,
    )  # fmt: skip
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table
