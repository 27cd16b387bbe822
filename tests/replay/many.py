"""Many synthetic sessions through `lethe replay`: how fast, and in how much memory.

    python -m tests.replay.many --sessions 100000 --jobs 2
    python -m tests.replay.many --sessions 1550 --steps 120        # 1 GB of long ones

Writes them to a folder of its own (400 MB for 100,000 of 4 steps), replays them in a process of its
own, prints seconds and the most memory that any of its processes held, and removes all of it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

from tests.replay.recorded import call


def session(random: Random, at: int, steps: int) -> dict[str, Any]:
    """About so many steps of an agent, 1 KB each and some more the more there are."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an agent. " * 20},
        {"role": "user", "content": f"Task {at}."},
    ]
    counts, prompt = [], 150
    for step in range(random.randint(steps // 2, steps + steps // 2)):
        thought, result = random.randint(20, 120), random.randint(20, 20 * steps + 100)
        write = "echo done > out.txt" if step % 2 else "cat notes.txt"
        messages += [
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": f"think {step} " * (thought // 2),
                "tool_calls": [call(step, write)],
            },
            {"role": "tool", "tool_call_id": f"call_{step}", "content": "line \n" * (result // 2)},
        ]
        counts.append(
            {
                "prompt_tokens": prompt,
                "completion_tokens": thought + 20,
                "completion_tokens_details": {"reasoning_tokens": thought},
            }
        )
        prompt += thought + 20 + result
    return {"model": "m", "task": f"task-{at}", "messages": messages, "step_usage": counts}


def write(path: Path, sessions: int, steps: int) -> int:
    """The bytes that were written."""
    random = Random(1)
    with path.open("w") as file:
        for at in range(sessions):
            file.write(json.dumps(session(random, at, steps)) + "\n")
    return path.stat().st_size


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sessions", type=int, default=100_000)
    options.add_argument("--steps", type=int, default=4)
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options.add_argument("arguments", nargs="*", help="more for lethe replay, after --")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sessions.jsonl"
        size = write(path, given.sessions, given.steps)
        print(f"{given.sessions:,} sessions, {size / 1e6:,.0f} MB", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", "proxy", "replay", str(path), "--jobs", str(given.jobs)]
        environ = {**os.environ, "XDG_CACHE_HOME": folder}
        subprocess.run([*command, *given.arguments], check=True, env=environ)
        seconds = time.monotonic() - began
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        print(f"{seconds:,.0f} s, {size / 1e6 / seconds:,.1f} MB/s, {given.jobs} processes")
        print(f"largest process: {peak:,.0f} MB")


if __name__ == "__main__":
    main()
