"""The synthetic agent: what a policy does to tokens, bill and operations when all steps are alike.

It sends one request a step: the preamble, then of each earlier step its reasoning where the policy
kept it, its action and the observation. Each answer is reasoning and action. Verdicts come from the
policies themselves; artifacts stand evenly spread, at a given share of the steps.

The bill follows the accounting of providers that charge for writing to their cache: what is read
costs the read price, everything else of a prompt that is then held is written to the cache and
costs the write price, a prompt that is not held costs the input price, and so does all under the
rule `none`. With the rule `prompt`, block 1, that gives the figures of the literature to the last
digit.

An agent that forgets may think more. Such growth lengthens every step's reasoning under each policy
that drops any; break-even is the growth at which the policy costs as much as `keep`. Between two
whole numbers of tokens it is taken from a straight line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from proxy.core import operations
from proxy.core.artifact import Judgement
from proxy.core.cachemodel import Segment, Segments, Split, held, replayed, size
from proxy.core.contract import CacheRule
from proxy.core.operations import Price, Work
from proxy.core.policy import Name, Policy, decide, parse
from proxy.core.pricing import Sheet
from proxy.core.verdict import DROP

KEEP = Policy(Name.KEEP)
COMPARED = ("keep", "drop", "after_artifact", "keep_latest:1", "random:0.5")
SIMULATED = frozenset({Name.KEEP, Name.DROP, Name.AFTER_ARTIFACT, Name.KEEP_LATEST, Name.RANDOM})
"""Policies whose verdicts need no more than a step's place, its artifact and a hash."""


@dataclass(frozen=True, slots=True)
class Agent:
    """Sizes in tokens. `artifacts` is the share (0 to 1) of steps that leave one."""

    steps: int = 40
    reasoning: int = 1_500
    action: int = 150
    observation: int = 1_200
    preamble: int = 20_000
    artifacts: Decimal = Decimal("0.5")


@dataclass(frozen=True, slots=True)
class Run:
    """The agent under a policy: each request's prompt and what was generated behind it."""

    policy: Policy
    agent: Agent
    dropped: int
    """Steps whose reasoning is not in the last prompt."""
    served: tuple[tuple[Segments, Segments], ...]

    @property
    def output(self) -> int:
        return sum(size(generated) for _, generated in self.served)


def named(text: str) -> Policy:
    """A policy as people write it. Raises ValueError for what is none, and for one whose verdicts
    need more than is simulated.
    """
    policy = parse(text)
    if policy.name not in SIMULATED:
        known = ", ".join(sorted(name.value for name in SIMULATED))
        raise ValueError(f"policy {policy}: sizes alone do not decide it; simulated are {known}")
    return policy


def play(policy: Policy, agent: Agent, growth: Fraction = Fraction(0)) -> Run:
    """The agent from end to end, under one of the policies `SIMULATED`. `growth` (0.4: 40 % more,
    to whole tokens) applies where the policy drops anything.
    """
    run = _run(policy, agent)
    more = round(agent.reasoning * growth)
    return _run(policy, _thinking(agent, agent.reasoning + more)) if run.dropped and more else run


def _thinking(agent: Agent, tokens: int) -> Agent:
    return replace(agent, reasoning=max(0, tokens))


def _run(policy: Policy, agent: Agent) -> Run:
    parts = [_parts(agent, step) for step in range(agent.steps)]
    served, dropped = [], 0
    for at, (reasoning, action, _) in enumerate(parts):
        gone = [_drops(policy, agent, step, at) for step in range(at)]
        rows = (part[1:] if out else part for part, out in zip(parts, gone, strict=False))
        prompt = (Segment(b"preamble", agent.preamble), *(it for row in rows for it in row))
        served.append((_said(prompt), _said((reasoning, action))))
        dropped = sum(gone)
    return Run(policy, agent, dropped, tuple(served))


def _parts(agent: Agent, step: int) -> Segments:
    return (
        Segment(b"reasoning %d" % step, agent.reasoning),
        Segment(b"action %d" % step, agent.action),
        Segment(b"observation %d" % step, agent.observation),
    )


def _said(segments: Segments) -> Segments:
    """Without those that are empty: what is not said parts nothing from anything."""
    return tuple([it for it in segments if it.tokens])


def _drops(policy: Policy, agent: Agent, step: int, steps: int) -> bool:
    """Whether a step's reasoning is out of the prompt that holds so many steps."""
    judged = Judgement(_leaves_artifact(agent, step), False, "")
    verdict = decide(policy, True, steps - 1 - step, b"step %d" % step, lambda: judged)
    return verdict == DROP


def _leaves_artifact(agent: Agent, step: int) -> bool:
    """Evenly spread: of the first n steps the share of n, rounded down."""
    return (step + 1) * agent.artifacts // 1 > step * agent.artifacts // 1


# What it comes to


def splits(run: Run, rule: CacheRule) -> tuple[Split, ...]:
    return replayed(rule, run.served)


def total(parts: Iterable[Split]) -> Split:
    """All input of a run, by kind."""
    rows = list(parts)
    return Split(
        sum(it.read for it in rows), sum(it.rebuilt for it in rows), sum(it.new for it in rows)
    )


def bill(run: Run, rule: CacheRule, prices: Sheet) -> Decimal:
    """In dollars."""
    return sum(_bills(run, rule, prices), Decimal(0))


def _bills(run: Run, rule: CacheRule, prices: Sheet) -> Iterator[Decimal]:
    for it, (prompt, generated) in zip(splits(run, rule), run.served, strict=True):
        anew = prices.cache_write if held(rule, prompt, ()) else prices.input
        yield it.uncached * anew + it.read * prices.cache_read + size(generated) * prices.output


def work(run: Run, rule: CacheRule) -> Work:
    return operations.total(operations.works(rule, run.served))


def cost(run: Run, rule: CacheRule, price: Price, premium: Fraction) -> Fraction:
    """In the unit of the price."""
    return operations.operations(work(run, rule), price, premium)


# Break-even


Measure = Callable[[Run], Fraction]
"""What a run costs, in any unit."""

MOST = 100
"""Times its reasoning: where no policy is as dear as `keep` by then, none is said to be."""


def break_even(policy: Policy, agent: Agent, measure: Measure) -> Fraction | None:
    """The growth (0.4: 40 %) of reasoning at which a policy costs what `keep` costs. None where it
    drops nothing, where it is dearer from the start, or never as dear.
    """
    if not agent.reasoning or not _run(policy, agent).dropped:
        return None
    aim = measure(play(KEEP, agent))

    def over(tokens: int) -> Fraction:
        return measure(_run(policy, _thinking(agent, tokens))) - aim

    low, high = agent.reasoning, agent.reasoning * MOST
    if over(low) > 0 or over(high) < 0:
        return None
    return (_root(over, low, high) - agent.reasoning) / agent.reasoning


def _root(over: Callable[[int], Fraction], low: int, high: int) -> Fraction:
    """Where a rising function meets 0, by straight lines; between neighbours by the last of them.

    The line guesses, halves are taken in turn with it: few looks where the function is straight,
    never more than twice those of bisection.
    """
    below, above, guess = over(low), over(high), True
    while high - low > 1:
        crossing = low - below * (high - low) / (above - below) if above > below else Fraction(low)
        at = int(crossing) if guess else (low + high) // 2
        at = min(max(at, low + 1), high - 1)
        found = over(at)
        if found <= 0:
            low, below = at, found
        else:
            high, above = at, found
        guess = not guess
    return low - below * (high - low) / (above - below) if above > below else Fraction(low)
