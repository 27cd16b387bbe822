"""One request from end to end: read, prune, forward, relay, observe, remember.

Whatever happens in between, the bytes go through: where our own reading or judging fails, the
request leaves as it came and the fault is counted. Every ending closes both sides and is told once.
"""

from __future__ import annotations

from proxy import forwarding
from proxy.account import Account
from proxy.core import headers as wire_headers
from proxy.core import paths
from proxy.core.codings import Decoder
from proxy.core.outcome import Route
from proxy.core.sse import UsageFilter
from proxy.core.turn import Turn, Unreadable
from proxy.core.wire import chat as wire
from proxy.doors import Doors
from proxy.errors import BadHeader, Draining
from proxy.forwarding import Ready, Refused, Request, answered, upstream_headers
from proxy.keeping import Keeper
from proxy.keys import Caller, wanted_setting
from proxy.prune import prune
from proxy.relay import BodyChunks, Receive, Send, Watch, read_body, relay_watched
from proxy.tap import Tap
from proxy.upstream import Reply


async def chat(doors: Doors, request: Request, receive: Receive, send: Send) -> None:
    """A chat completion: pruned, forwarded, relayed."""
    account = Account(doors, Route.CHAT, request.named)
    async with account.kept(send):
        doors_open(doors)
        caller = account.caller = doors.keyring.caller(request.named)
        declared = request.named.get(b"content-length")
        raw = await read_body(receive, doors.settings.max_body_bytes, declared)
        account.came(len(raw))
        async with Watch(request.client) as watch:
            ready = await _ready(doors, account, caller, request, raw)
            # A body is not held longer than it can be of use: replies take minutes.
            del raw
            reply, asked = await forwarding.forward(doors, account, caller, request, ready)
            del ready
            came = wire_headers.returned(reply.headers)
            edit = _Filter() if asked and _is_plain_stream(reply) else None
            account.tap = tap = Tap(reply.status, dict(came))
            keeper = _keeper(doors, account, reply.status, tap)
            account.ending = await relay_watched(
                watch, send, reply, [*came, *account.headers()], reply.status, tap, edit,
                account.first_byte, keeper,
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
        headers = upstream_headers(request, caller, up, frozenset())
        if (length := request.named.get(b"content-length")) is not None:
            headers.append((b"content-length", length))
        account.leaves(up)
        url = paths.url_for(up.url, request.path, request.query)
        has_body = _has_body(request)
        async with Watch(request.client) as watch:
            reply = await answered(await doors.upstream.send(
                doors.targets[up.name], request.method, url, headers,
                body if has_body else None,
            ))  # fmt: skip
            account.status = reply.status
            account.ending = await relay_watched(
                watch, send, reply, wire_headers.returned(reply.headers), reply.status,
                account.counter, None, account.first_byte,
            )  # fmt: skip


def doors_open(doors: Doors) -> None:
    if doors.state.draining:
        raise Draining("the proxy is shutting down; try again: another replica will answer")


def _keeper(doors: Doors, account: Account, status: int, tap: Tap) -> Keeper | None:
    """Who keeps the reply, where it may have to be put back."""
    pruning = account.pruning
    if pruning is None or not 200 <= status < 300 or not pruning.decided.wire.looks_back:
        return None
    return Keeper(doors, pruning.turn, tap, lambda: account.fault("keep"))


async def _ready(
    doors: Doors, account: Account, caller: Caller, request: Request, raw: bytes
) -> Ready:
    """Read, judge and seal; where that cannot be done, the request as it came."""
    setting = wanted_setting(caller, request.named)
    if setting and not await doors.ledger.set_policy(caller.scope, setting):
        account.fault("set_policy")
    it = _read(doors, account, caller, raw, request.named.get(b"content-encoding", b""))
    account.model = it.model if it else ""
    up = doors.keyring.upstream(caller, account.model)
    if it is None:
        return forwarding.as_it_came(raw, up)
    account.streamed = wire.streams(it.fields)
    try:
        pruning = await prune(doors, caller, request.named, it, up)
    except BadHeader:
        raise
    except Exception:
        # Our trouble is never the client's: the request leaves as it came, and that is counted.
        account.fault("prune")
        return forwarding.as_it_came(raw, up)
    account.pruning = pruning.without_bodies()
    return forwarding.ready(doors, account, raw, pruning)


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


def _decoded(raw: bytes, encoding: bytes, most: int) -> bytes:
    """The body without its content coding, at most so many bytes. Raises `Unreadable`."""
    if encoding in (b"", b"identity"):
        return raw
    decoder = Decoder(encoding.decode("latin-1"), most, most)
    body = decoder.feed(raw) + decoder.close()
    if decoder.failed:
        raise Unreadable("too_large" if decoder.too_large else "encoding")
    return body


class _Filter(UsageFilter):
    """Takes out the usage that we asked for. `failures` is the relay's to count."""

    failures = 0


def _has_body(request: Request) -> bool:
    return b"content-length" in request.named or b"transfer-encoding" in request.named


def _is_plain_stream(reply: Reply | Refused) -> bool:
    """Whether events can be seen in it as they come: a coded stream passes as it is."""
    named = {name.lower(): value.lower() for name, value in reply.headers}
    coded = named.get(b"content-encoding", b"") not in (b"", b"identity")
    return named.get(b"content-type", b"").startswith(b"text/event-stream") and not coded
