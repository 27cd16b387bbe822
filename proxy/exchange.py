"""One request from end to end: read, prune, forward, relay, observe, remember.

Whatever happens in between, the bytes go through: where our own reading or judging fails, the
request leaves as it came and the fault is counted. Every ending closes both sides and is told once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import msgspec
from msgspec.structs import replace

from proxy.account import Account, told_of
from proxy.core import headers as wire_headers
from proxy.core import paths
from proxy.core.headers import Headers
from proxy.core.outcome import Route
from proxy.core.policy import Name
from proxy.core.reply import Decoder
from proxy.core.sse import UsageFilter
from proxy.core.turn import Turn, Unreadable
from proxy.core.wire import chat as wire
from proxy.doors import Doors
from proxy.errors import BadHeader, Draining, UpstreamUnreachable
from proxy.keys import Caller, wanted_setting
from proxy.prune import Pruning, prune
from proxy.relay import BodyChunks, Receive, Send, Watch, read_body, relay_watched
from proxy.settings import UpstreamSettings
from proxy.tap import Tap
from proxy.upstream import Reply

LARGEST_ERROR = 64 * 1024
"""Bytes of an error body that are read to learn what was refused."""
REFUSAL_HOLDS = 3600.0
"""Seconds for which an upstream that refused to report a stream's usage is not asked again."""
_CREDENTIALS = frozenset({b"authorization", b"api-key", b"x-api-key"})


class Request(msgspec.Struct, frozen=True):
    """One HTTP request as ASGI hands it over. `named` has the last value of every header."""

    method: str
    path: bytes
    query: bytes
    headers: Headers
    named: Mapping[bytes, bytes]


class Ready(msgspec.Struct, frozen=True):
    """A request as it leaves. `asks` says that usage was asked for on the client's behalf: `plain`
    is the body without. `recoded` and `plain_recoded` say of each that its content coding is gone.
    """

    body: bytes
    plain: bytes
    asks: bool
    recoded: bool
    plain_recoded: bool
    up: UpstreamSettings


async def chat(doors: Doors, request: Request, receive: Receive, send: Send) -> None:
    """A chat completion: pruned, forwarded, relayed."""
    account = Account(doors, Route.CHAT, request.named)
    async with account.kept(send):
        doors_open(doors)
        caller = account.caller = doors.keyring.caller(request.named)
        declared = request.named.get(b"content-length")
        raw = await read_body(receive, doors.settings.max_body_bytes, declared)
        account.came(len(raw))
        async with Watch(receive) as watch:
            ready = await _ready(doors, account, caller, request, raw)
            # A body is not held longer than it can be of use: replies take minutes.
            del raw
            reply, asked = await _forward(doors, account, caller, request, ready)
            del ready
            came = wire_headers.returned(reply.headers)
            edit = _Filter() if asked and _is_plain_stream(reply) else None
            account.tap = Tap(reply.status, dict(came))
            account.ending = await relay_watched(
                watch, send, reply, [*came, *account.headers()], reply.status, account.tap, edit,
                account.first_byte,
            )  # fmt: skip
            account.close()


async def passed(doors: Doors, request: Request, receive: Receive, send: Send) -> None:
    """Any other path: byte for byte, in both directions, as it comes."""
    account = Account(doors, Route.PASS, request.named)
    async with account.kept(send):
        doors_open(doors)
        caller = account.caller = doors.keyring.caller(request.named)
        up = doors.keyring.upstream(caller, "")
        body = BodyChunks(receive)
        headers = _upstream_headers(request, caller, up, frozenset())
        if (length := request.named.get(b"content-length")) is not None:
            headers.append((b"content-length", length))
        account.leaves(up)
        url = paths.url_for(up.url, request.path, request.query)
        has_body = _has_body(request)
        if not has_body:
            await _to_its_end(body)
        async with Watch(body.receive) as watch:
            reply = await answered(await doors.upstream.send(
                doors.targets[up.name], request.method, url, headers,
                body if has_body else None,
            ))  # fmt: skip
            account.status = reply.status
            account.ending = await relay_watched(
                watch, send, reply, wire_headers.returned(reply.headers), reply.status,
                account.counter, None, account.first_byte,
            )  # fmt: skip


async def _to_its_end(body: BodyChunks) -> None:
    """Read what holds nothing, so that the client can be watched."""
    async for _ in body:
        pass
    await body.aclose()


def doors_open(doors: Doors) -> None:
    if doors.state.draining:
        raise Draining("the proxy is shutting down; try again: another replica will answer")


async def _ready(
    doors: Doors, account: Account, caller: Caller, request: Request, raw: bytes
) -> Ready:
    """Read, judge and seal; where that cannot be done, the request as it came."""
    setting = wanted_setting(caller, request.named)
    if setting and not await doors.ledger.set_policy(caller.scope, setting):
        account.fault("set_policy")
    it = _read(doors, account, caller, raw, request.named.get(b"content-encoding", b""))
    model = it.model if it else ""
    account.model = told_of(model)
    up = doors.keyring.upstream(caller, model)
    if it is None:
        return Ready(raw, raw, False, False, False, up)
    account.streamed = wire.streams(it.fields)
    try:
        pruning = await prune(doors, caller, request.named, it, up)
    except BadHeader:
        raise
    except Exception:
        # Our trouble is never the client's: the request leaves as it came, and that is counted.
        account.fault("prune")
        return Ready(raw, raw, False, False, False, up)
    account.pruning = pruning.without_bodies()
    return _asking(doors, account, raw, it, up, pruning)


def _read(
    doors: Doors, account: Account, caller: Caller, raw: bytes, encoding: bytes
) -> Turn | None:
    started = doors.ticks()
    try:
        body = _decoded(raw, encoding, doors.settings.max_body_bytes)
        return doors.memo.read(body, caller.scope)
    except Unreadable as unread:
        account.unread = unread.reason
    except Exception:
        account.fault("read")
    finally:
        account.read_seconds = doors.ticks() - started
    return None


def _asking(
    doors: Doors, account: Account, raw: bytes, it: Turn, up: UpstreamSettings, pruning: Pruning
) -> Ready:
    """Ask for usage at the end of a stream, where the client did not and the upstream takes it."""
    changed = bool(pruning.sealed.edits)
    plain = pruning.sealed.body if changed else raw
    wanted = (
        account.streamed
        and up.stream_usage == "ask"
        and doors.ticks() >= doors.state.refuses_usage.get(up.name, 0.0)
        and pruning.rule.name is not Name.OFF
    )
    edit = wire.ask_for_usage(it.body, it.fields) if wanted else None
    if edit is None:
        return Ready(plain, plain, False, changed, changed, up)
    edits = sorted((*pruning.sealed.edits, edit), key=lambda e: e.start)
    return Ready(wire.apply(it.body, edits), plain, True, True, changed, up)


def _decoded(raw: bytes, encoding: bytes, most: int) -> bytes:
    """The body without its content coding, at most so many bytes. Raises `Unreadable`."""
    if encoding in (b"", b"identity"):
        return raw
    decoder = Decoder(encoding.decode("latin-1"), most, most)
    body = decoder.feed(raw) + decoder.close()
    if decoder.failed:
        raise Unreadable("too_large" if decoder.too_large else "encoding")
    return body


async def _forward(
    doors: Doors, account: Account, caller: Caller, request: Request, ready: Ready
) -> tuple[Reply | Refused, bool]:
    """Send it; the reply, and whether usage was asked for with it.

    A 400 that refuses the usage that we asked for is answered by one retry without.
    """
    up = ready.up
    url = paths.url_for(up.url, request.path, request.query)
    target = doors.targets[up.name]
    headers = _chat_headers(request, caller, ready)
    account.leaves(up)
    reply = await answered(
        await doors.upstream.send(target, request.method, url, headers, ready.body, repeatable=True)
    )
    account.status = reply.status
    if not (ready.asks and reply.status == 400):
        return reply, ready.asks
    refused = await Refused.read(reply)
    if not refused.names(b"stream_options", b"include_usage"):
        return refused, True
    await refused.aclose()
    account.retried = True
    ready = replace(ready, body=ready.plain, asks=False, recoded=ready.plain_recoded)
    headers = _chat_headers(request, caller, ready)
    reply = await answered(
        await doors.upstream.send(target, request.method, url, headers, ready.body, repeatable=True)
    )
    account.status = reply.status
    if reply.status != 400:
        # Only now is it known that the question was what it refused, and not something else.
        doors.state.refuses_usage[up.name] = doors.ticks() + REFUSAL_HOLDS
    return reply, False


async def answered(reply: Reply) -> Reply:
    """A reply with a status that a client can get. Raises UpstreamUnreachable for any other."""
    if 200 <= reply.status <= 599:
        return reply
    await reply.aclose()
    raise UpstreamUnreachable(f"the upstream answered with status {reply.status}")


class _Filter(UsageFilter):
    """Takes out the usage that we asked for. `failures` is the relay's to count."""

    failures = 0


class Refused:
    """A reply whose beginning was read to learn what was refused, and that can still be relayed."""

    def __init__(self, reply: Reply, pieces: list[bytes]) -> None:
        self._reply, self._pieces = reply, pieces
        self.status, self.headers = reply.status, reply.headers

    @classmethod
    async def read(cls, reply: Reply) -> Refused:
        pieces: list[bytes] = []
        try:
            async for chunk in reply.chunks:
                pieces.append(chunk)
                if sum(map(len, pieces)) > LARGEST_ERROR:
                    break
        except BaseException:
            await reply.aclose()
            raise
        return cls(reply, pieces)

    def names(self, *words: bytes) -> bool:
        text = b"".join(self._pieces)
        return any(word in text for word in words)

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


def _chat_headers(request: Request, caller: Caller, ready: Ready) -> Headers:
    drop = frozenset({b"accept-encoding", *((b"content-encoding",) if ready.recoded else ())})
    headers = _upstream_headers(request, caller, ready.up, drop)
    accepted = request.named.get(b"accept-encoding")
    headers.append((b"accept-encoding", wire_headers.accept_encoding(accepted, ready.asks)))
    return headers


def _upstream_headers(
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


def _has_body(request: Request) -> bool:
    return b"content-length" in request.named or b"transfer-encoding" in request.named


def _is_plain_stream(reply: Reply | Refused) -> bool:
    """Whether events can be seen in it as they come: a coded stream passes as it is."""
    named = {name.lower(): value.lower() for name, value in reply.headers}
    coded = named.get(b"content-encoding", b"") not in (b"", b"identity")
    return named.get(b"content-type", b"").startswith(b"text/event-stream") and not coded
