"""Writes what a replay found as a Parquet file: a row for each session, policy, cache rule and
price. Needs pyarrow (extra `parquet`).

Rows are written as they are read back, some thousand at a time. Money is decimal, in US dollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from proxy.core.cachemodel import written
from proxy.errors import SettingsError
from proxy.replay.plan import Plan
from proxy.replay.rows import Row

GROUP = 20_000
"""Rows that are written together."""
PLACES = 18
"""Decimal places of money: prices have up to 12."""
_TEXTS = (
    "file", "session", "format", "model", "task", "arm", "recorded_policy", "policy", "cache",
    "prices",
)  # fmt: skip
_NUMBERS = (
    "requests", "steps", "output", "reasoning", "estimated_output", "anchored_requests", "breaks",
    "dropped", "input", "read", "rebuilt", "new", "positions", "pairs",
)  # fmt: skip


def usable(path: Path) -> None:
    """Raises SettingsError where no such file can be written, before any work is done."""
    if find_spec("pyarrow") is None:
        raise SettingsError("Parquet needs pyarrow: python -m pip install pyarrow")
    if not path.parent.is_dir():
        raise SettingsError(f"--out {path}: its folder does not exist")


class Table:
    """An open file; `add` takes sessions."""

    def __init__(self, writer: Any, schema: Any, plan: Plan) -> None:
        self._writer, self._schema, self._plan = writer, schema, plan
        self._rows: list[dict[str, Any]] = []

    def add(self, row: Row) -> None:
        self._rows += lines(row, self._plan)
        if len(self._rows) >= GROUP:
            self.flush()

    def flush(self) -> None:
        if self._rows:
            pyarrow = import_module("pyarrow")
            self._writer.write_table(pyarrow.Table.from_pylist(self._rows, self._schema))
            self._rows = []


@contextmanager
def opened(path: Path, plan: Plan) -> Iterator[Table]:
    """A file that is there whole or not at all. Raises SettingsError where it cannot be written."""
    parquet = import_module("pyarrow.parquet")
    part, schema = path.with_name(f"{path.name}.part"), _schema()
    try:
        with parquet.ParquetWriter(part, schema, compression="zstd") as writer:
            table = Table(writer, schema, plan)
            yield table
            table.flush()
        part.replace(path)
    except OSError as error:
        raise SettingsError(f"--out {path}: cannot be written: {error}") from error


def _schema() -> Any:
    pyarrow = import_module("pyarrow")
    texts = [(name, pyarrow.string()) for name in _TEXTS]
    numbers = [(name, pyarrow.int64()) for name in _NUMBERS]
    money = pyarrow.decimal128(38, PLACES)
    return pyarrow.schema([*texts, ("success", pyarrow.bool_()), *numbers, ("bill_usd", money)])


def lines(row: Row, plan: Plan) -> Iterable[dict[str, Any]]:
    """The rows of one session."""
    for name, under in zip(plan.policies, row.under, strict=True):
        for rule, served in zip(plan.caches, under.served, strict=True):
            for priced, bill in zip(plan.prices, served.bills, strict=True):
                yield {
                    "file": row.file, "session": row.id, "format": row.format, "model": row.model,
                    "task": row.label.task, "arm": row.label.arm, "success": row.label.success,
                    "recorded_policy": row.policy, "policy": name, "cache": written(rule),
                    "prices": priced.name, "requests": row.requests, "steps": row.steps,
                    "output": row.output, "reasoning": row.reasoning,
                    "estimated_output": row.estimated_output, "anchored_requests": row.anchored,
                    "breaks": sum(under.breaks.values()), "dropped": under.dropped,
                    "input": under.input, "read": served.read, "rebuilt": served.rebuilt,
                    "new": served.new, "positions": served.positions, "pairs": served.pairs,
                    "bill_usd": bill.quantize(Decimal(1).scaleb(-PLACES)),
                }  # fmt: skip
