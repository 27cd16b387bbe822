"""What all commands do with what was raised on purpose: words on stderr and an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from proxy.errors import ProxyError, SettingsError


@contextmanager
def told() -> Iterator[None]:
    """Errors, alone or in a group: 2 for what cannot be used, 1 for what failed."""
    code = 0
    try:
        yield
    except* SettingsError as group:
        code = _say(group, 2)
    except* ProxyError as group:
        code = _say(group, 1)
    if code:
        raise typer.Exit(code)


def _say(group: BaseExceptionGroup[ProxyError], code: int) -> int:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            _say(error, code)
        else:
            print(f"lethe: {error}", file=sys.stderr)
    return code
