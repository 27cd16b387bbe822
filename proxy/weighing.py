"""Weighs the steps of one request for the policy `horizon`: their sizes, the terms of the upstream
and model, what is still to come.

Each step is weighed as at its append point: what stood before it, and how far the conversation had
come then. Its sizes are the provider's counts where this worker saw the reply that it echoes, else
its bytes at the model's own bytes a token. What still comes is said with the policy, else in the
settings, else learned from past conversations (`outlook`). What is not known is no reason to
forget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

from proxy.core.contract import Contract
from proxy.core.horizon import (
    NOT_KNOWN,
    Lacks,
    Remaining,
    Source,
    Step,
    Terms,
    Unit,
    Weighed,
)
from proxy.core.policy import Policy
from proxy.core.ratio import Ratio, is_whole
from proxy.core.sent import Element
from proxy.core.tariff import Tariff, Unpriced
from proxy.core.turn import Turn
from proxy.core.verdict import Kind, Verdict
from proxy.doors import Doors
from proxy.outlook import Life, Whose
from proxy.settings import UpstreamSettings

MOST_TOLD = 8
"""Steps of one request whose numbers are told; more than one or two are judged only where a
conversation is met in mid-life.
"""


class Weigher:
    """One request. `standing` are the verdicts that are known, by step; `found` is what was
    weighed so far, by step.
    """

    def __init__(
        self, doors: Doors, it: Turn, front: tuple[Element, ...], up: UpstreamSettings,
        contract: Contract, task: str, standing: Mapping[int, Verdict],
    ) -> None:  # fmt: skip
        self._doors, self._turn, self._front, self._standing = doors, it, front, standing
        self._whose = Whose(it.scope, task, it.root, it.conversation)
        self._contract, self._up = contract, up
        self._ratio: Ratio = doors.state.ratios.of(up.name, it.model)
        self.found: dict[int, Weighed] = {}
        # From now on it is noted how far conversations come; also of this one, from its beginning.
        doors.state.outlook.awake = True

    def pays(self, rule: Policy, index: int) -> bool:
        """Whether to forget the reasoning of the step with that index."""
        weighed = self._weighed(rule, index)
        if weighed.step.reasoning:
            self.found[index] = weighed
        return weighed.pays

    def _weighed(self, rule: Policy, index: int) -> Weighed:
        first = self._turn.steps[index].first
        before = self._turn.messages[first - 1].link if first else b""
        last = self._doors.state.outlook.last(self._whose, before)
        step, counted = self._sizes(first, last)
        terms = self._terms(step)
        if isinstance(terms, Lacks):
            return Weighed(index, step, counted, None, lacks=terms)
        stands = last.positions if last else self._ratio.estimated(self._bytes(first + 1, True))
        if terms.unit is Unit.REQUESTS:
            stands = index + 1
        return Weighed(index, step, counted, terms, self._remaining(rule, terms.unit, stands))

    def _sizes(self, first: int, last: Life | None) -> tuple[Step, bool]:
        """The step in tokens, and whether a provider counted them."""
        kept = self._turn.messages[first].kept
        thought = self._ratio.estimated(kept.reasoning)
        if last is None:
            said = self._ratio.estimated(kept.size - kept.reasoning)
            return Step(self._ratio.estimated(self._bytes(first, False)), thought, said), False
        counted = last.reasoning is not None and is_whole(kept.reasoning, last.reasoning)
        if counted and last.reasoning is not None:
            thought = last.reasoning
        # Nothing that could be forgotten: what was thought and is not there is not counted.
        thought = min(thought, last.output) if kept.reasoning else 0
        return Step(last.prompt, thought, last.output - thought), counted

    def _bytes(self, end: int, kept: bool) -> int:
        """Of the prompt before a message: as the policy of the time had it, or all kept."""
        return self._sums[kept][end]

    @cached_property
    def _sums(self) -> Mapping[bool, Sequence[int]]:
        """The bytes before each message, and before the end: all kept, and as it was sent."""
        dropped = (at for at, it in self._standing.items() if it.kind is not Kind.KEEP)
        gone = {self._turn.steps[at].first for at in dropped}
        front, rows = sum(element.size for element in self._front), self._turn.messages
        whole = [row.kept.size for row in rows]
        sent = [row.dropped.size if at in gone else row.kept.size for at, row in enumerate(rows)]
        return {
            True: list(accumulate(whole, initial=front)),
            False: list(accumulate(sent, initial=front)),
        }

    def _terms(self, step: Step) -> Terms | Lacks:
        own, rule = self._doors.settings.horizon, self._contract.cache
        if rule is None:
            return Lacks.CACHE_RULE
        rate = Fraction(own.exchange_rate)
        if own.by == "operations":
            return Terms(rule.reuse, Unit.POSITIONS, rate)
        tariff = self._doors.prices.of(self._up.name, self._turn.model)
        if isinstance(tariff, Tariff):
            tokens = step.before + step.reasoning + step.action
            sheet = tariff.sheet(tokens, self._doors.clock())
            return Terms(rule.reuse, Unit.REQUESTS, None, sheet.cache_write, sheet.cache_read)
        if own.by == "bill" or tariff is Unpriced.PENDING:
            return Lacks.PRICE
        return Terms(rule.reuse, Unit.POSITIONS, rate)

    def _remaining(self, rule: Policy, unit: Unit, stands: int) -> Remaining:
        own = self._doors.settings.horizon.remaining
        if rule.remaining is not None:
            return Remaining(Fraction(rule.remaining), Source.POLICY)
        if own is not None:
            return Remaining(Fraction(own), Source.SETTINGS)
        now = self._doors.clock()
        found = self._doors.state.outlook.expected(self._whose, unit, stands, now)
        return Remaining(found.mean, Source.LEARNED, found.samples) if found else NOT_KNOWN

    def told(self, put: Mapping[int, Verdict]) -> tuple[Weighed, ...]:
        """What decided the verdicts that were put by this very request: the latest of them."""
        weighed = [self.found[at] for at in sorted(put) if at in self.found][-MOST_TOLD:]
        return tuple([replace(it, verdict=put[it.index].kind.value) for it in weighed])
