"""What a comparison says, in plain sentences: a loss is told as one, and not knowing as that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from proxy.page import plain
from proxy.report import figures
from proxy.report.compare import LEAST, Change, Comparison, Design
from proxy.report.groups import Group
from proxy.report.whole import Report


class Verdict(msgspec.Struct, frozen=True):
    """`tone` is `good`, `bad`, `mixed`, `calm` (no difference is told) or `unknown`."""

    model: str
    policy: str
    baseline: str
    headline: str
    tone: str
    sentences: Sequence[str]


def verdicts(it: Report) -> list[Verdict]:
    """Of every policy that there is, the largest bill first."""
    return [verdict(it.comparisons[arm.key], arm) for arm in it.arms if arm.key in it.comparisons]


def verdict(it: Comparison, arm: Group) -> Verdict:
    headline, tone = _headline(it)
    sentences = (*_sentences(it), *_breaks(it, arm), _design(it)) if it.theirs else _alone(it)
    return Verdict(it.model, it.policy, it.baseline, headline, tone, tuple(filter(None, sentences)))


# The headline


def _headline(it: Comparison) -> tuple[str, str]:
    cost, bill = it.changes["cost_per_step"], it.changes["cost_per_conversation"]
    if not it.theirs:
        return f"nothing to compare with: no conversation under {it.baseline}", "unknown"
    if not cost.enough:
        return "not enough data", "unknown"
    word, tone = _of_bill(_sign(cost), _sign(bill))
    success = _sign(it.changes["success"])
    if not success:
        return word, tone
    more = "succeeds more often" if success > 0 else "succeeds less often"
    joined = f"{word}, and {more}"
    if tone == "calm":
        return joined, "good" if success > 0 else "bad"
    return joined, tone if (tone == "good") == (success > 0) else "mixed"


def _of_bill(step: int, conversation: int) -> tuple[str, str]:
    match step, conversation:
        case (-1, 1):
            return "cheaper per step, dearer per conversation", "mixed"
        case (1, -1):
            return "dearer per step, cheaper per conversation", "mixed"
        case (-1, _):
            return "cheaper per step", "good"
        case (1, _):
            return "dearer per step", "bad"
        case (_, -1):
            return "cheaper per conversation", "good"
        case (_, 1):
            return "dearer per conversation", "bad"
    return "no difference of the bill can be told", "calm"


def _sign(change: Change) -> int:
    """1 or -1 where the direction is sure, else 0."""
    if not change.certain or change.interval is None:
        return 0
    return 1 if change.interval.value > 0 else -1


# The sentences


def _sentences(it: Comparison) -> Iterator[str]:
    yield _cost(it)
    yield _if_certain(it, "cost_per_conversation", "A conversation costs {} than under {baseline}.")
    yield _if_certain(it, "cost_per_success", "A success costs {} than under {baseline}.")
    yield _output(it)
    yield _if_certain(it, "steps_per_conversation", "A conversation takes {} steps.")
    yield _success(it)
    yield _mechanical(it)


def _cost(it: Comparison) -> str:
    change = it.changes["cost_per_step"]
    if not change.enough or change.interval is None:
        return _too_few(it, change, "what a step costs")
    if change.certain:
        return f"{it.policy} costs {figures.much(change.interval)} than {it.baseline} per step."
    return (
        f"Whether {it.policy} costs more or less than {it.baseline} per step cannot be told: "
        f"{figures.much(change.interval)}."
    )


def _output(it: Comparison) -> str:
    change, thought = it.changes["output_per_step"], it.changes["reasoning_per_step"]
    if not change.enough or change.interval is None:
        return _too_few(it, change, "what a step puts out")
    if not change.certain:
        much = figures.much(change.interval)
        return f"Output per step is not told apart from {it.baseline}'s: {much}."
    verb = "rose" if change.interval.value > 0 else "fell"
    told = f"Output per step {verb} {figures.size(change.interval)} under {it.policy}"
    if verb == "rose" and it.forgets:
        told += ": the agent re-derives what it no longer sees"
    if thought.certain and thought.interval:
        verb = "rose" if thought.interval.value > 0 else "fell"
        told += f"; its reasoning per step {verb} {figures.size(thought.interval)}"
    return f"{told}."


def _success(it: Comparison) -> str:
    change = it.changes["success"]
    if not sum(change.units):
        return (
            "Whether it succeeds is unknown: of these conversations no outcome was posted to "
            "/lethe/outcomes."
        )
    if not change.enough or change.interval is None or change.ours is None:
        return _too_few(it, change, "whether they succeeded")
    rates = f"{plain.percent(change.ours)} against {plain.percent(change.theirs)}"
    told = f"{rates}, {figures.points(change.interval.value)}{figures.sure(change.interval)}"
    if change.certain:
        often = "more" if change.interval.value > 0 else "less"
        return f"It succeeds {often} often: {told}."
    return f"Success is not told apart from {it.baseline}'s: {told}."


def _mechanical(it: Comparison) -> str:
    change, real = it.changes["mechanical"], it.changes["cost_per_step"]
    if change.interval is None:
        return ""
    value = change.interval.value
    size = figures.size(change.interval) if change.enough else figures.percent(value)
    side = f"{size} {'higher' if value > 0 else 'lower'} than"
    if figures.number(abs(value)) == "0":
        side = "the same as"
    told = f"Mechanically, with all that the agent said held fixed, its bill is {side} under keep"
    if it.design is not Design.PAIRED or not real.certain or real.interval is None:
        return f"{told}."
    rest = figures.points(real.interval.value - value)
    return f"{told}; what the agent did differently makes {rest} of the change per step."


def _breaks(it: Comparison, arm: Group) -> Iterator[str]:
    if arm.own and arm.steps:
        yield (
            f"{it.policy} itself broke the cached prefix {plain.numbered(arm.own, 'time')} in "
            f"{plain.numbered(arm.steps, 'step')}."
        )


def _if_certain(it: Comparison, name: str, form: str) -> str:
    change = it.changes[name]
    if not change.certain or change.interval is None:
        return ""
    return form.format(figures.much(change.interval), baseline=it.baseline)


def _too_few(it: Comparison, change: Change, what: str) -> str:
    ours, theirs = change.units
    unit = "conversation" if it.design is Design.CONVERSATIONS else "task"
    return (
        f"Not enough data on {what}: {plain.numbered(ours, unit)} under {it.policy} and {theirs} "
        f"under {it.baseline} tell it; it takes {LEAST} in each."
    )


def _design(it: Comparison) -> str:
    match it.design:
        case Design.PAIRED:
            return (
                f"Compared on the {plain.numbered(it.units, 'task')} that ran under both, each "
                f"counted once; {it.ours} and {plain.numbered(it.theirs, 'conversation')}."
            )
        case Design.TASKS:
            how = f"drawn by {plain.numbered(it.units, 'task')}"
        case Design.CONVERSATIONS:
            how = "each for itself"
    return (
        f"Compared over {it.ours} and {plain.numbered(it.theirs, 'conversation')}, {how}; they may "
        "have worked on different things."
    )


def _alone(it: Comparison) -> tuple[str, ...]:
    return (
        _mechanical(it),
        f"Let some conversations run under {it.baseline} to see what the agent itself does "
        f"differently: send them with the header x-lethe-policy: {it.baseline}, and with "
        "x-lethe-task where the same tasks can run under both.",
    )
