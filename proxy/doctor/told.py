"""The findings for people (a table, the verdicts, the contract) and for scripts (one object)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proxy.core.contract import Contract
from proxy.doctor.contract_text import Examined, contract_of, toml_of, unknowns
from proxy.doctor.findings import Findings
from proxy.doctor.verdicts import verdicts
from proxy.page import plain


@dataclass(frozen=True, slots=True)
class Report:
    """`known` is what was known of the upstream and model before; `requests` were sent; `out` is
    the file that is to have the contract.
    """

    found: Findings
    examined: Examined
    known: Contract
    requests: int
    out: Path | None = None

    @property
    def contract(self) -> Contract | None:
        """None where no reply came, as nothing was found out then."""
        if not self.found.reachable.value:
            return None
        return contract_of(self.found, self.examined, self.known)

    @property
    def toml(self) -> str:
        contract = self.contract
        return toml_of(contract, unknowns(self.found)) if contract else ""


def show(console: Console, report: Report) -> None:
    """Everything on one page; what a provider said can steer no terminal."""
    examined, contract = report.examined, report.contract
    where = f"{examined.upstream}, {examined.model}: {plain.numbered(report.requests, 'request')}"
    console.print(Text(plain.line(where), "bold"))
    console.print(_table(report.found))
    if contract is None:
        console.print(Text("\nNo reply came, so nothing was found out and there is no contract."))
        return
    console.print(Text("\nWhat each policy does to the cache here", "bold"))
    console.print(_policies(report.found))
    if contract.warning:
        console.print(Text(f"\nKnown against forgetting here: {contract.warning}", "yellow"))
    if report.out is None:
        console.print(Text("\nThe contract\n", "bold"))
        console.out(plain.visible(report.toml), highlight=False, end="")


def _table(found: Findings) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("question", max_width=22)
    table.add_column("found", overflow="fold", max_width=24)
    table.add_column("how", overflow="fold", style="dim")
    for row in found.rows:
        style = "yellow" if row.value is None else ""
        table.add_row(row.what, Text(plain.line(row.found), style), Text(plain.line(row.how)))
    return table


def _policies(found: Findings) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for it in verdicts(found):
        table.add_row(it.policy, it.words)
    return table


def what_next(report: Report) -> Iterator[str]:
    """What to do with the contract, and what to type for it."""
    yield ""
    if report.out is None:
        yield f"Put the contract into a file, {_NO_NAME} (--out {_NO_NAME} would have done it)."
    for name, step in _next(report).items():
        yield f"{_STEPS[name]}:\n  {step}"


_NO_NAME = "own.toml"
_STEPS = {
    "check": "See what holds with it",
    "setting": "Use it, by a line in the file that lethe serve --config reads",
    "serve": "or by the environment",
}


def _next(report: Report) -> dict[str, str]:
    """By name: a setting, and commands as a shell takes them."""
    file, examined = report.out or Path(_NO_NAME), report.examined
    named = f"LETHE_PROVIDERS={shlex.quote(str(file))}"
    upstream = f"--upstream {shlex.quote(examined.upstream)}"
    return {
        "check": f"{named} lethe contracts {upstream} --model {shlex.quote(examined.model)}",
        "setting": f"providers = {json.dumps(str(file.absolute()), ensure_ascii=False)}",
        "serve": f"{named} lethe serve {upstream}",
    }


def as_json(report: Report) -> dict[str, Any]:
    """`value` is null where it is not known; `contract` is TOML, empty where no reply came, and
    then nothing comes `next`.
    """
    contract = report.contract
    rows = [
        {"what": row.what, "value": _plain(row.value), "found": row.found, "how": row.how}
        for row in report.found.rows
    ]
    return {
        "upstream": report.examined.upstream,
        "model": report.examined.model,
        "requests": report.requests,
        "findings": rows,
        "policies": {it.policy: it.words for it in verdicts(report.found)},
        "warning": contract.warning if contract else "",
        "contract": report.toml,
        "out": str(report.out) if report.out and contract else None,
        "next": _next(report) if contract else {},
    }


def _plain(value: Any) -> Any:
    return getattr(value, "value", value)
