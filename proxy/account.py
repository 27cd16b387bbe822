"""Gathers the facts of one exchange while it goes, and sees to it that it is told once, however it
ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType

import orjson

from proxy.bill import NONE as NO_BILL
from proxy.bill import Bill, bill
from proxy.core import echo, expect, fingerprint
from proxy.core.contract import UNKNOWN, Contract, Reuse
from proxy.core.expect import Cached
from proxy.core.headers import Headers
from proxy.core.outcome import Outcome, Route, Timings
from proxy.core.seen import Seen
from proxy.core.thought import Thought
from proxy.core.turn import LONGEST_MODEL
from proxy.core.usage import Usage
from proxy.doors import Doors
from proxy.errors import ClientGone, Draining, InternalError, ProxyError
from proxy.keys import Caller
from proxy.outlook import Life, Whose, task_of
from proxy.prune import Pruning, record
from proxy.relay import Ending, Send
from proxy.settings import UpstreamSettings
from proxy.tap import Tap

FAILED = "failed"
"""The ending of an exchange that we answered ourselves, with an error."""
_LONGEST_WORD = 120


def told_of(text: str) -> str:
    """A word from outside as it may be told: short, and Unicode."""
    if text.isascii() and len(text) <= _LONGEST_WORD:
        return text
    return text[:_LONGEST_WORD].encode("utf-8", "replace").decode()


class Counter:
    """Counts the bytes that pass, and reads nothing."""

    def __init__(self) -> None:
        self.failures = 0
        self.bytes = 0

    def feed(self, chunk: bytes) -> None:
        self.bytes += len(chunk)


class Account:
    """One exchange. Seconds are by the doors' monotonic ticks."""

    def __init__(self, doors: Doors, route: Route, named: Mapping[bytes, bytes]) -> None:
        self._doors, self._route = doors, route
        self._began = self._came = doors.ticks()
        self._left: float | None = None
        self._first: float | None = None
        self._task = task_of(named)
        self._faults: list[str] = []
        self._error = ""
        self._up: UpstreamSettings | None = None
        self._closed = False
        self.id = doors.new_id()
        self.caller: Caller | None = None
        self.status = 0
        self.ending: Ending | None = None
        self.model = self.unread = self.mended = ""
        self.streamed = self.retried = False
        self.bytes_in = 0
        self.read_seconds: float | None = None
        self.pruning: Pruning | None = None
        self.tap: Tap | None = None
        self.counter = Counter()

    def fault(self, place: str) -> None:
        """Our own trouble, which the client does not see."""
        self._faults.append(place)

    def came(self, size: int) -> None:
        """The request's last byte is here: from now on it is our time, not the client's."""
        self.bytes_in = size
        self._came = self._doors.ticks()

    def leaves(self, up: UpstreamSettings) -> None:
        """The request is ready to be forwarded."""
        self._up = up
        self._left = self._doors.ticks()

    def first_byte(self) -> None:
        self._first = self._doors.ticks()

    def kept(self, send: Send) -> _Kept:
        """Runs an exchange to whatever end it comes to; our own refusals become an answer."""
        return _Kept(self, send)

    def begun(self) -> None:
        self._doors.observer.in_flight += 1

    def over(self) -> None:
        self._doors.observer.in_flight -= 1
        self.close()

    def failed(self, error: BaseException) -> ProxyError | None:
        """Note how the exchange failed; what to answer the client, None where nothing can be."""
        match error:
            case ClientGone():
                self.ending = Ending.CLIENT_GONE
                self.status = self.status or error.status
                return None
            case asyncio.CancelledError():
                self.ending = Ending.DRAINING
                self.status = self.status or Draining.status
                raise error
            case ProxyError():
                told = error
            case _:
                # Not foreseen, so ours: counted, and told where the reply has not begun.
                self.fault("exchange")
                if self.status or not isinstance(error, Exception):
                    raise error
                told = InternalError("the proxy failed on this request; it is counted as its fault")
        self.status, self._error = told.status, told.code
        return told

    def headers(self) -> Headers:
        """What is known when the request leaves, for the client to read."""
        overhead = (self._left or self._came) - self._came
        rows = [(b"x-lethe-exchange", self.id.encode())]
        if self.pruning is not None:
            rows += _pruned_headers(self.pruning)
        return [*rows, (b"x-lethe-overhead-ms", b"%.2f" % (overhead * 1000))]

    def close(self) -> None:
        """Tell it and remember it, once. Nothing here may hurt the exchange, which is over.

        Called as soon as the last byte is written, before anything is awaited: a client whose tool
        is fast may ask again at once, and that turn must find what was sent in this one.
        """
        if self._closed:
            return
        self._closed = True
        try:
            seen = self._seen()
            outcome = self._outcome(seen)
            line = self._doors.observer.tell(outcome)
            self._remember(outcome, line, seen)
        except Exception:
            # What is told and remembered is for later; this exchange is over and well.
            self._doors.observer.counts.add("lethe_faults_total", ("remember",))

    def _remember(self, outcome: Outcome, line: bytes, seen: Seen | None) -> None:
        """Note what left, where the upstream took it."""
        if self.pruning is None or self.caller is None or not 200 <= self.status < 300:
            return
        usage = seen.usage if seen else Usage()
        rule = self._contract().cache
        # Only a cache that holds generated tokens has a use for what the reply becomes.
        generated = rule is not None and rule.reuse is Reuse.GENERATED
        reply = echo.digest_of(seen) if seen and generated else b""
        self._doors.ledger.remember(
            record(
                self._doors,
                self.caller,
                self.pruning,
                line,
                outcome.at,
                outcome.upstream,
                usage,
                reply,
                outcome.thought or Thought(),
                outcome.shadows,
            )  # fmt: skip
        )
        if self._doors.state.outlook.awake:
            self._note(self.pruning, outcome, usage)

    def _note(self, pruning: Pruning, outcome: Outcome, usage: Usage) -> None:
        """How far the conversation came, for who weighs what is still to come of others."""
        if usage.input is None or usage.output is None:
            return
        it, dropped = pruning.turn, outcome.thought.tokens if outcome.thought else 0
        whose = Whose(it.scope, pruning.decided.task, it.root, it.conversation)
        link, requests = it.messages[-1].link if it.messages else it.root, len(it.steps) + 1
        life = Life(
            link, requests, usage.input, usage.output, usage.reasoning, dropped, outcome.at
        )  # fmt: skip
        self._doors.state.outlook.note(whose, life)

    def _contract(self) -> Contract:
        up = self._up
        return self._doors.contracts.of(up.name, self.model).contract if up else UNKNOWN

    def _cached(self, seen: Seen | None, now: float) -> Cached | None:
        """What the cache should have served, beside what it did; None where no reply came."""
        up, pruning = self._up, self.pruning
        if up is None or pruning is None or seen is None or not 200 <= self.status < 300:
            return None
        last, sealed = pruning.sealed.basis, pruning.sealed
        return expect.compare(
            self._contract(), last, sealed.elements, sealed.finding,
            seen.usage.cache_read, now - last.at if last else 0.0, up.name,
        )  # fmt: skip

    def _seen(self) -> Seen | None:
        if self.tap is None:
            return None
        try:
            self._error = self._error or self.tap.error()
            seen = self.tap.seen()
        except Exception:
            # The reply has reached the client; that we could not read it is counted, no more.
            self.fault("tap")
            return None
        if self.tap.failures:
            self.fault("tap")
        return seen

    def _outcome(self, seen: Seen | None) -> Outcome:
        pruning, now = self.pruning, self._doors.clock()
        billed = self._bill(seen, now)
        return Outcome(
            id=self.id,
            at=now,
            route=self._route,
            status=self.status,
            ending=self.ending.value if self.ending else FAILED,
            upstream=self._up.name if self._up else "",
            model=told_of(self.model),
            key=self.caller.alias if self.caller else "",
            task=self._task,
            streamed=self.streamed,
            unread=self.unread,
            error=told_of(self._error or (seen.error if seen else "")),
            bytes_in=self.bytes_in,
            bytes_out=self.tap.bytes if self.tap else self.counter.bytes,
            retried=self.retried,
            mended=self.mended,
            pruned=pruning.told(self._cached(seen, now)) if pruning else None,
            usage=seen.usage if seen and self.status < 400 else None,
            finish=told_of(seen.finish_reason) if seen else "",
            timings=self._timings(),
            faults=tuple(self._faults),
            money=billed.money,
            unpriced=billed.unpriced,
            thought=billed.thought,
            shadows=billed.shadows,
        )

    def _bill(self, seen: Seen | None, now: float) -> Bill:
        """What it came to, where it was answered well."""
        if self._up is None or seen is None or not 200 <= self.status < 300:
            return NO_BILL
        model = self.model or fingerprint.short(seen.model, LONGEST_MODEL)
        try:
            return bill(
                self._doors, self.pruning, seen, self._contract(), self._up.name, model, now
            )
        except Exception:
            # Money is for people to read; what was sent and what came is told all the same.
            self.fault("bill")
            return NO_BILL

    def _timings(self) -> Timings:
        settle = self.pruning.settle_seconds if self.pruning else None
        overhead = self._left - self._came if self._left is not None else None
        first = None
        if self._first is not None and self._left is not None:
            first = self._first - self._left
        recall = self.pruning.recall_seconds if self.pruning else None
        total = self._doors.ticks() - self._began
        return Timings(self.read_seconds, settle, recall, overhead, first, total)


class _Kept:
    """What `Account.kept` gives: a context that ends well whatever happens inside."""

    __slots__ = ("_account", "_send")

    def __init__(self, account: Account, send: Send) -> None:
        self._account, self._send = account, send

    async def __aenter__(self) -> None:
        self._account.begun()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        try:
            told = self._account.failed(error) if error is not None else None
            if told is not None:
                await answer(self._send, told)
        finally:
            self._account.over()
        return error is not None


def _pruned_headers(it: Pruning) -> Headers:
    finding = it.sealed.finding
    prefix = f"broken; cause={finding.cause.value}" if finding.is_break else finding.cause.value
    return [
        (b"x-lethe-conversation", it.turn.conversation.hex().encode()),
        (b"x-lethe-policy", str(it.rule).encode()),
        (b"x-lethe-steps-dropped", b"%d" % it.sealed.dropped),
        # Four bytes a token: an estimate, and marked as one.
        (b"x-lethe-dropped-tokens", b"~%d" % (it.sealed.dropped_bytes // 4)),
        (b"x-lethe-prefix", prefix.encode()),
    ]


async def answer(send: Send, error: ProxyError) -> None:
    """One of our own failures, in the shape of an OpenAI error."""
    body = orjson.dumps(
        {"error": {"message": str(error), "type": error.type, "param": None, "code": error.code}}
    )
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-lethe-error", error.code.encode()),
    ]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
