"""What has to be known to read a report, and what to do where there is nothing to report."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.page import plain
from proxy.replay.statistics import RESAMPLES
from proxy.report.compare import LEAST
from proxy.report.intervals import SEED
from proxy.report.run import SEVERAL
from proxy.report.whole import Report


def notes(it: Report) -> list[str]:
    """What has to be known to read the numbers."""
    unpriced = sum(row.unpriced for row in it.arms)
    have = "has no price and is" if unpriced == 1 else "have no price and are"
    missing = (
        f" {plain.numbered(unpriced, 'request')} {have} in no bill "
        "(set priced_as of the upstream, or a [[price]] table; lethe price --providers)."
        if unpriced
        else ""
    )
    told = [
        "A step is one request that was answered to its end. Averages are over what is known; a "
        "number that no provider reported is –.",
        f"Bills are at the prices in force when each request was answered.{missing}",
        "The mechanical saving holds the continuation fixed: it is what the very same requests "
        "would have cost more under keep, and a loss where it is negative. What forgetting makes "
        "an agent do differently is in the comparison alone.",
        f"A change is told as one where at least {LEAST} conversations (tasks, where enough of "
        "them are labelled with x-lethe-task) stand in each arm and its 95 % interval does not "
        f"hold 0; else it is marked with a ? and is no finding. Intervals are by bootstrap, "
        f"{RESAMPLES:,} draws with seed {SEED}, or normal ones where there are very many. Of "
        "twenty changes that are none, one is told as one by chance.",
        "Nobody assigned policies to tasks by lot, unless you did: pair them, by sending the same "
        "tasks under both policies with the same x-lethe-task.",
    ]
    return told + list(_odd(it))


def _odd(it: Report) -> Iterator[str]:
    models = {arm.key.model for arm in it.arms}
    if len(models) > 1:
        yield "Models cost and think differently: policies are compared within one model alone."
    mixed = [run for run in it.runs if SEVERAL in (run.policy, run.model)]
    if mixed:
        yield (
            f"Listed as several, and compared with nothing: "
            f"{plain.numbered(len(mixed), 'conversation')} in which policy or model changed."
        )


def nothing(since: bool) -> list[str]:
    """What to do where no conversation is there."""
    if since:
        return [
            "No conversation was active in that time.",
            "Look further back: --since 30d, or leave it out. The ledger keeps a conversation for "
            "7 days after its last turn unless [ledger] ttl says otherwise.",
        ]
    return [
        "No conversation yet, so there is nothing to report.",
        "Point an agent at the proxy:  export OPENAI_BASE_URL=http://127.0.0.1:4100/v1",
        "Name each task:               x-lethe-task: <label>",
        "Run it under two policies:    x-lethe-policy: keep, then x-lethe-policy: drop",
        "Say how it ended:             curl -H 'content-type: application/json' -d "
        """'{"task": "<label>", "success": true}' http://127.0.0.1:4101/lethe/outcomes""",
    ]
