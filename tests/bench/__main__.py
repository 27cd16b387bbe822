"""`python -m tests.bench [--quick] [--json]`: measures, prints the table, tells what is missed."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from dataclasses import asdict

from rich.console import Console

from tests.bench import report, rounds, system


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short run: rough figures")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    chosen = parser.parse_args()
    told = Console(stderr=True)
    own, theirs = system.cores()
    with told.status("starting") as status:
        plan = rounds.QUICK if chosen.quick else rounds.FULL
        results = rounds.run(plan, status.update)
    found = report.rows(results)
    notes = report.notes(results, found)
    conditions = {
        "python": platform.python_version(), "core_of_the_bench": own, "core_of_the_proxy": theirs,
        "plan": asdict(plan),
    }  # fmt: skip
    if chosen.json:
        rows = [asdict(row) for row in found]
        told_json = {"conditions": conditions, "rows": rows, "notes": notes}
        json.dump({**told_json, **rounds.as_json(results)}, sys.stdout, indent=1)
        return
    out = Console(width=max(Console().width, report.WIDTH))
    out.print(report.table(found))
    for note in notes:
        out.print(note, style="bold red" if note.startswith("MISSED") else None, highlight=False)


if __name__ == "__main__":
    main()
