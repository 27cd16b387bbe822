"""Sends a chat request on its way; once more, where it was refused with a 400 that can be mended.

What is refused is known by the contract's error patterns, and by the usage that we ask for. One
mend, one retry, before a byte reached the client, and never a second: where it does not help, the
client gets the refusal. What helped is pinned to the conversation, and learned for new ones of the
same upstream and model.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import msgspec
from msgspec.structs import replace

from proxy import advising, writing
from proxy.account import Account
from proxy.core import dialect, paths
from proxy.core import headers as wire_headers
from proxy.core.codings import Decoder
from proxy.core.contract import Remedy, StreamUsage
from proxy.core.dialect import Wire
from proxy.core.headers import Headers
from proxy.core.policy import Name
from proxy.core.wire import chat as wire
from proxy.cycle import Client
from proxy.doors import Doors
from proxy.errors import UpstreamTimeout, UpstreamUnreachable
from proxy.keys import Caller
from proxy.prune import Decided, Pruning, sealed
from proxy.settings import UpstreamSettings
from proxy.upstream import Reply

LARGEST_ERROR = 64 * 1024
"""Bytes of an error body that are read to learn what was refused."""
SEARCHED = 8 * 1024
"""Characters of what it says that are searched for known words, which stand at its beginning:
patterns may take time by the square of what they search."""
_SPELLED = 4
# Bytes that a character may take: a body has escapes, and not of every letter.
ERROR_SECONDS = 2.0
"""Seconds for an error body to come; what has not come by then is relayed as it comes."""
REFUSAL_HOLDS = 3600.0
"""Seconds for which an upstream that refused to report a stream's usage is not asked again."""
_REFUSALS = frozenset({400, 422})
"""422 is Mistral's and FastAPI's word for a request that does not fit."""
# Errors come as texts in JSON, and from gateways as texts in these; some escape every quote.
_escaped = re.compile(r"""\\{1,9}+(?:u00([0-7][0-9a-f])|(?=["'`/]))""", re.IGNORECASE)
_CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key"})


class Request(msgspec.Struct, frozen=True):
    """One HTTP request as ASGI hands it over. `named` has the last value of every header."""

    method: str
    path: bytes
    query: bytes
    headers: Headers
    named: Mapping[bytes, bytes]
    client: Client


class Ready(msgspec.Struct, frozen=True):
    """A request as it leaves. `asks` says that usage was asked for on the client's behalf: `plain`
    is the body without. `recoded` and `plain_recoded` say of each that its content coding is gone.
    `raw` is the body as it came, `decided` what may be carried out otherwise; None where nothing
    was read.
    """

    raw: bytes
    body: bytes
    plain: bytes
    asks: bool
    recoded: bool
    plain_recoded: bool
    up: UpstreamSettings
    decided: Decided | None = None


def as_it_came(raw: bytes, up: UpstreamSettings) -> Ready:
    return Ready(raw, raw, raw, False, False, False, up)


def ready(doors: Doors, account: Account, raw: bytes, pruning: Pruning) -> Ready:
    """Ask for usage at the end of a stream, where the client did not and the upstream takes it."""
    decided, it = pruning.decided, pruning.turn
    up, changed = decided.up, bool(pruning.sealed.edits or decided.added.edits)
    plain = pruning.sealed.body if changed else raw
    wanted = (
        account.streamed
        and decided.contract.stream_usage is StreamUsage.ASK
        and doors.ticks() >= doors.state.refuses_usage.get(up.name, 0.0)
        and pruning.rule.name is not Name.OFF
    )
    edit = wire.ask_for_usage(it.body, it.fields) if wanted else None
    if edit is None:
        return Ready(raw, plain, plain, False, changed, changed, up, decided)
    edits = sorted((*pruning.sealed.edits, edit), key=lambda e: e.start)
    return Ready(raw, wire.apply(it.body, edits), plain, True, True, changed, up, decided)


async def forward(
    doors: Doors, account: Account, caller: Caller, request: Request, first: Ready
) -> tuple[Reply | Refused, bool]:
    """Send it; the reply, and whether usage was asked for with it."""
    account.leaves(first.up)
    reply = await _sent(doors, account, caller, request, first)
    if reply.status not in _REFUSALS or (first.decided is None and not first.asks):
        return reply, first.asks
    refused = await Refused.read(reply)
    async with _closed_if_left(refused):
        mend = await _mend(doors, account, first, refused) if refused.is_whole else None
    if mend is None:
        return refused, first.asks
    account.retried = True
    again = await _again(doors, account, caller, request, mend.ready)
    if again is None:
        account.status = refused.status
        return refused, first.asks
    if 200 <= again.status < 300:
        async with _closed_if_left(again):
            await _learn(doors, mend)
    return again, mend.ready.asks


async def _again(
    doors: Doors, account: Account, caller: Caller, request: Request, mended: Ready
) -> Reply | None:
    """The reply to the mended request; None where the upstream is in trouble over it: the client
    gets the refusal then, which it knows better than to repeat.
    """
    try:
        reply = await _sent(doors, account, caller, request, mended, repeatable=False)
    except (UpstreamUnreachable, UpstreamTimeout):
        return None
    if reply.status < 500:
        return reply
    await reply.aclose()
    return None


@asynccontextmanager
async def _closed_if_left(reply: Reply | Refused) -> AsyncIterator[None]:
    """Nobody else knows of the reply yet: where the client leaves meanwhile, it ends here."""
    try:
        yield
    except BaseException:
        await reply.aclose()
        raise


async def _sent(
    doors: Doors, account: Account, caller: Caller, request: Request, one: Ready,
    repeatable: bool = True,
) -> Reply:  # fmt: skip
    url = paths.url_for(one.up.url, request.path, request.query)
    headers = _chat_headers(request, caller, one)
    reply = await answered(
        await doors.upstream.send(
            doors.targets[one.up.name],
            request.method,
            url,
            headers,
            one.body,
            repeatable=repeatable,
        )
    )
    account.status = reply.status
    return reply


class _Mend(msgspec.Struct, frozen=True):
    """What is sent instead. `wire` is how messages are written in it, as `remedy` has it; None
    where it is only not asked for usage any more.
    """

    ready: Ready
    remedy: Remedy | None = None
    wire: Wire | None = None


async def _mend(doors: Doors, account: Account, first: Ready, refused: Refused) -> _Mend | None:
    """What may be taken where this was refused; None where nothing is known to help."""
    text = refused.text()
    if first.asks and ("stream_options" in text or "include_usage" in text):
        plain = replace(first, body=first.plain, asks=False, recoded=first.plain_recoded)
        return _Mend(plain)
    decided = first.decided
    if decided is None or decided.rule.name is Name.OFF:
        return None
    remedy = _remedy(decided, text)
    if remedy is None:
        return None
    try:
        return await _rewritten(doors, account, first, decided, remedy)
    except Exception:
        # The refusal is the provider's answer; that we could not mend it is our trouble.
        account.fault("mend")
        return None


def _remedy(decided: Decided, text: str) -> Remedy | None:
    fits = (p.remedy for p in decided.contract.errors if re.search(p.error, text, re.IGNORECASE))
    return next(fits, None)


async def _rewritten(
    doors: Doors, account: Account, first: Ready, decided: Decided, remedy: Remedy
) -> _Mend | None:
    """The request written anew; None where that changes nothing."""
    mended = await _wire(doors, decided, remedy)
    if mended == decided.wire:
        return None
    replies, more = decided.replies, 0
    if mended.looks_back and not decided.wire.looks_back:
        replies, more = await writing.found(doors, decided.turn, decided.setting, mended)
    anew = replace(decided, wire=mended, replies=replies, missed=decided.missed + more)
    left = account.pruning.sealed.elements if account.pruning else ()
    pruning = await sealed(doors, anew, left)
    if pruning.sealed.body == first.plain:
        return None
    account.mended = remedy.value
    account.pruning = pruning.without_bodies()
    return _Mend(ready(doors, account, first.raw, pruning), remedy, mended)


async def _wire(doors: Doors, decided: Decided, remedy: Remedy) -> Wire:
    """How it is written now: as another worker found out for this conversation, else as the remedy
    has it.
    """
    mended = dialect.mended(decided.wire, remedy)
    pin = writing.names_of(decided.up, decided.turn.model)[1]
    raw = (await _settled(doors, decided, {pin: None})).get(pin)
    stands = dialect.unpacked(raw, mended) if raw else mended
    return mended if stands == decided.wire else stands


async def _settled(
    doors: Doors, decided: Decided, pins: Mapping[str, bytes | None]
) -> Mapping[str, bytes]:
    """What stands under these pins of the conversation."""
    ask = writing.asks(decided.turn, decided.setting, pins=pins)
    return (await doors.ledger.settle(ask)).pins


async def _learn(doors: Doors, mend: _Mend) -> None:
    """What was taken holds: for this conversation for ever, for new ones for a while."""
    up, decided = mend.ready.up, mend.ready.decided
    if mend.wire is None or decided is None:
        # Only now is it known that the question was what it refused, and not something else.
        doors.state.refuses_usage[up.name] = doors.ticks() + REFUSAL_HOLDS
    else:
        pin = writing.names_of(up, decided.turn.model)[1]
        await _settled(doors, decided, {pin: dialect.packed(mend.wire)})
        await writing.learn(doors, up, decided.turn.model, mend.wire)
    if decided is not None:
        advising.advise(doors, up, decided.turn.model, decided.contract, mend.remedy)


async def answered(reply: Reply) -> Reply:
    """A reply with a status that a client can get. Raises UpstreamUnreachable for any other."""
    if 200 <= reply.status <= 599:
        return reply
    await reply.aclose()
    raise UpstreamUnreachable(f"the upstream answered with status {reply.status}")


class Refused:
    """A reply whose beginning was read to learn what was refused, and that can still be relayed."""

    def __init__(self, reply: Reply, pieces: list[bytes]) -> None:
        self._reply, self._pieces = reply, pieces
        self.status, self.headers = reply.status, reply.headers

    @classmethod
    async def read(cls, reply: Reply) -> Refused:
        pieces: list[bytes] = []
        size = 0
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(ERROR_SECONDS):
                    async for chunk in reply.chunks:
                        pieces.append(chunk)
                        size += len(chunk)
                        if size > LARGEST_ERROR:
                            break
        except BaseException:
            await reply.aclose()
            raise
        return cls(reply, pieces)

    @property
    def is_whole(self) -> bool:
        """Whether all of it has come, so that nothing is lost when another is asked for."""
        return self._reply.ended == "complete"

    def text(self) -> str:
        """The beginning of what it says, without its content coding and the marks of texts within
        texts; empty where its coding cannot be undone.
        """
        named = {name.lower(): value for name, value in self.headers}
        raw = b"".join(self._pieces)
        coding = named.get(b"content-encoding", b"")
        if coding not in (b"", b"identity"):
            decoder = Decoder(coding.decode("latin-1"), LARGEST_ERROR, LARGEST_ERROR)
            raw = decoder.feed(raw) + decoder.close()
        text = raw[: _SPELLED * SEARCHED].decode("utf-8", "replace")
        return _escaped.sub(_unescaped, text)[:SEARCHED]

    @property
    def ended(self) -> str | None:
        return self._reply.ended

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        return self._again()

    async def _again(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece
        if self._reply.ended is None:
            async for chunk in self._reply.chunks:
                yield chunk

    async def aclose(self) -> None:
        await self._reply.aclose()


def _unescaped(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else ""


def _chat_headers(request: Request, caller: Caller, ready: Ready) -> Headers:
    drop = frozenset({b"accept-encoding", *((b"content-encoding",) if ready.recoded else ())})
    headers = upstream_headers(request, caller, ready.up, drop)
    accepted = request.named.get(b"accept-encoding")
    headers.append((b"accept-encoding", wire_headers.accept_encoding(accepted, ready.asks)))
    return [*headers, *ready.decided.added.headers] if ready.decided else headers


def upstream_headers(
    request: Request, caller: Caller, up: UpstreamSettings, drop: frozenset[bytes]
) -> Headers:
    """The client's headers; a virtual key is replaced by the upstream's own."""
    key = up.api_key
    if not (caller.settings and caller.settings.virtual and key):
        return wire_headers.forwarded(request.headers, drop=drop)
    headers = wire_headers.forwarded(request.headers, drop=drop | _CREDENTIALS)
    name = next((n for n in (b"api-key", b"x-api-key") if n in request.named), b"authorization")
    value = key.encode() if name != b"authorization" else b"Bearer " + key.encode()
    return [*headers, (name, value)]
