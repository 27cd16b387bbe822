"""The form at rest: how verdicts, records and messages are written as bytes, and read back.

Every value opens with a format version. Version 1 is plain; version 2 is AES-GCM, with a nonce of
its own and the value's name as associated data, so that a value does not open under another name.
What cannot be read, for whatever reason, counts as absent: readers give None and never raise.

    value    version; in version 2 a nonce of 12 bytes; the payload, encrypted in version 2
    verdict  a value: core.verdict's own form
    head     the outgoing digest in the clear, then a value: time, token counts, the length of the
             upstream's name, that name, and what shadow policies would have left out
    body     the parent's outgoing digest (zeros: none) and how many parents there are, in the
             clear, then a value: a patch
    entry    a value: whether it came otherwise, the length of what left, what left, what came
    outcome  a value: JSON
    grade    a value: JSON: whether it succeeded, its score, when that was told
    reply    a value: how many texts, their lengths, the texts: carrier, reasoning, details,
             arguments. Its id digests these, with the key where there is one
    pin      a value: its length, what is pinned
    lesson   a value: when it ends, what was learned
    policy   version 1, its name; never encrypted
"""

from __future__ import annotations

import base64
import binascii
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any, Protocol

import msgspec
import orjson

from proxy.core import verdict as verdicts
from proxy.core.replies import Reply
from proxy.core.sent import Element, Held, Part, Sent, Shadowed
from proxy.core.verdict import Verdict
from proxy.errors import SettingsError
from proxy.ledger.contract import Entry, Grade
from proxy.ledger.trail import Patch

PLAIN, SEALED = b"\x01", b"\x02"
NO_PARENT = bytes(16)

_NONCE = 12
_HEAD = struct.Struct(">d5q?16s16sH")
_SHADOW, _HELD = struct.Struct(">HHq?B"), struct.Struct(">Iqq")
_PATCH = struct.Struct(">IIIIH")
_ELEMENT = struct.Struct(">c16s16s8sIIH8sI")
_PARTS = {
    **{part.value.encode(): (part, False) for part in Part},
    **{part.value.upper().encode(): (part, True) for part in Part},
}
"""By the letter at rest: a capital one where something was put back."""
_LETTERS = {found: letter for letter, found in _PARTS.items()}
_ENTRY = struct.Struct(">?I")
_COUNT, _UNTIL = struct.Struct(">I"), struct.Struct(">d")
_UNREADABLE = (ValueError, KeyError, IndexError, struct.error, orjson.JSONDecodeError)


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes: ...


def _cipher(key: str) -> tuple[_Cipher, type[Exception]]:
    """Raises SettingsError for a key that is no key, and where the library is not installed."""
    try:
        # Loaded only where a key is given: the library is an optional extra.
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as missing:
        raise SettingsError(
            "encryption at rest needs the extra: python -m pip install cryptography"
        ) from missing
    return AESGCM(_key_bytes(key)), InvalidTag


def _key_bytes(key: str) -> bytes:
    for read in (bytes.fromhex, base64.urlsafe_b64decode):
        try:
            raw = read(key.strip())
        except (ValueError, binascii.Error):
            continue
        if len(raw) == 32:
            return raw
    raise SettingsError(
        "the ledger's encryption key is not 32 bytes in base64 or hex (openssl rand -base64 32)"
    )


@dataclass(frozen=True, slots=True)
class Body:
    """The elements of one record at rest: a patch against the parent's, if there is a parent."""

    parent: bytes
    depth: int
    patch: Patch


class Codec:
    """With a key, what says something is encrypted; without, what was encrypted does not open."""

    def __init__(self, key: str | None = None) -> None:
        self._cipher: _Cipher | None = None
        self._invalid: type[Exception] = ValueError
        self._id_key = self._label_key = b""
        if key:
            self._cipher, self._invalid = _cipher(key)
            self._id_key = blake2b(b"the ids of replies", key=_key_bytes(key)).digest()
            self._label_key = blake2b(b"the labels of tasks", key=_key_bytes(key)).digest()

    def _seal(self, name: bytes, payload: bytes) -> bytes:
        if self._cipher is None:
            return PLAIN + payload
        nonce = os.urandom(_NONCE)
        return SEALED + nonce + self._cipher.encrypt(nonce, payload, name)

    def _open(self, name: bytes, raw: bytes) -> bytes:
        """Raises ValueError for what does not open."""
        version, rest = raw[:1], raw[1:]
        if version == PLAIN:
            return rest
        if version != SEALED or self._cipher is None:
            raise ValueError("unknown version, or no key")
        try:
            return self._cipher.decrypt(rest[:_NONCE], rest[_NONCE:], name)
        except self._invalid as invalid:
            raise ValueError("another key, or another name") from invalid

    # Verdicts. A verdict read from a link must open under that link's name.

    def verdict(self, link: bytes, verdict: Verdict) -> bytes:
        return self._seal(b"v" + link, verdict.encoded())

    def read_verdict(self, link: bytes, raw: bytes) -> Verdict | None:
        try:
            return verdicts.decoded(self._open(b"v" + link, raw))
        except _UNREADABLE:
            return None

    # What was sent.

    def head(self, sent: Sent) -> bytes:
        counts = (
            sent.prompt_tokens, sent.output_tokens, sent.cached_tokens, sent.reasoning_tokens,
            sent.dropped_tokens,
        )  # fmt: skip
        known = (-1 if count is None else count for count in counts)
        upstream = _utf8(sent.upstream)
        fixed = _HEAD.pack(
            sent.at, *known, sent.dropped_estimated, sent.reply, sent.conversation, len(upstream)
        )  # fmt: skip
        shadows = map(_shadow, sent.shadows)
        payload = b"".join((fixed, upstream, *shadows))
        return sent.outgoing + self._seal(b"s" + sent.link, payload)

    def read_head(self, link: bytes, raw: bytes) -> Sent | None:
        """The record without its elements."""
        try:
            payload = self._open(b"s" + link, raw[16:])
            at, *counts, estimated, reply, conversation, length = _HEAD.unpack_from(payload)
            end = _HEAD.size + length
            upstream = payload[_HEAD.size : end].decode("utf-8", "surrogatepass")
            shadows = tuple(_shadows(payload, end))
        except _UNREADABLE:
            return None
        prompt, output, cached, thought, dropped = (None if n < 0 else n for n in counts)
        return Sent(
            link, raw[:16], (), at, upstream, prompt, output, cached,
            _or_none(reply), _or_none(conversation), thought, dropped, estimated, shadows,
        )  # fmt: skip

    def body(self, outgoing: bytes, body: Body) -> bytes:
        payload = _packed(body.patch)
        return body.parent + bytes((body.depth,)) + self._seal(b"d" + outgoing, payload)

    def read_body(self, outgoing: bytes, raw: bytes) -> Body | None:
        try:
            patch = _unpacked(self._open(b"d" + outgoing, raw[17:]))
            return Body(raw[:16], raw[16], patch)
        except _UNREADABLE:
            return None

    def assembled(
        self, outgoing: bytes, raws: Sequence[bytes], base: Sent | None
    ) -> tuple[tuple[Element, ...], int] | None:
        """The elements of a record and how many parents it has, out of its bodies, its own first.

        The last body has no parent, or its parent is `base`, whose elements are at hand.
        """
        bodies: list[Body] = []
        for raw in raws:
            body = self.read_body(outgoing, raw)
            if body is None:
                return None
            bodies.append(body)
            outgoing = body.parent
        elements: tuple[Element, ...] | None = ()
        if outgoing != NO_PARENT:
            elements = base.elements if base and base.outgoing == outgoing else None
        for body in reversed(bodies):
            elements = None if elements is None else body.patch.applied(elements)
        return None if elements is None else (elements, bodies[0].depth if bodies else 0)

    # Messages.

    def entry(self, entry: Entry) -> bytes:
        fixed = _ENTRY.pack(entry.came is not None, len(entry.left))
        return self._seal(b"e" + entry.digest, fixed + entry.left + (entry.came or b""))

    def read_entry(self, digest: bytes, raw: bytes) -> Entry | None:
        try:
            payload = self._open(b"e" + digest, raw)
            differs, length = _ENTRY.unpack_from(payload)
        except _UNREADABLE:
            return None
        left, came = payload[_ENTRY.size :][:length], payload[_ENTRY.size + length :]
        return Entry(digest, left, came if differs else None) if len(left) == length else None

    # Replies, pins, lessons.

    def reply(self, reply: Reply) -> tuple[bytes, bytes]:
        """Its id (16 bytes), which equal replies share, and its form at rest."""
        payload = _reply_packed(reply)
        id = blake2b(payload, digest_size=16, key=self._id_key).digest()
        return id, self._seal(b"r" + id, payload)

    def read_reply(self, id: bytes, raw: bytes) -> Reply | None:
        try:
            return _reply_unpacked(self._open(b"r" + id, raw))
        except _UNREADABLE:
            return None

    def pin(self, root: bytes, name: str, value: bytes) -> bytes:
        return self._seal(b"q" + root + name.encode(), _COUNT.pack(len(value)) + value)

    def read_pin(self, root: bytes, name: str, raw: bytes) -> bytes | None:
        try:
            payload = self._open(b"q" + root + name.encode(), raw)
            (length,) = _COUNT.unpack_from(payload)
        except _UNREADABLE:
            return None
        value = payload[_COUNT.size :]
        return value if len(value) == length else None

    def lesson(self, name: str, value: bytes, until: float) -> bytes:
        return self._seal(b"lesson " + _utf8(name), _UNTIL.pack(until) + value)

    def read_lesson(self, name: str, raw: bytes) -> tuple[bytes, float] | None:
        """The lesson, and when it ends."""
        try:
            payload = self._open(b"lesson " + _utf8(name), raw)
            (until,) = _UNTIL.unpack_from(payload)
        except _UNREADABLE:
            return None
        return payload[_UNTIL.size :], until

    # Accounts.

    def outcome(self, outcome: bytes) -> bytes:
        """An account, from its JSON text."""
        return self._seal(b"o", outcome)

    def read_outcome(self, raw: bytes) -> Mapping[str, Any] | None:
        try:
            outcome = orjson.loads(self._open(b"o", raw))
        except _UNREADABLE:
            return None
        return outcome if isinstance(outcome, dict) else None

    def label(self, task: str) -> bytes:
        """By which a task's label is known (16 bytes); with a key it does not tell the label."""
        return blake2b(_utf8(task), digest_size=16, key=self._label_key).digest()

    def grade(self, root: bytes, grade: Grade) -> bytes:
        return self._seal(b"u" + root, msgspec.json.encode(grade))

    def read_grade(self, root: bytes, raw: bytes) -> Grade | None:
        try:
            return msgspec.json.decode(self._open(b"u" + root, raw), type=Grade)
        except _UNREADABLE:
            return None


def policy(name: str | None) -> bytes:
    """Nothing for none."""
    return PLAIN + name.encode() if name else b""


def read_policy(raw: Any) -> str | None:
    """None for what cannot be one."""
    try:
        return raw[1:].decode() or None if isinstance(raw, bytes) and raw[:1] == PLAIN else None
    except UnicodeDecodeError:
        return None


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _reply_packed(reply: Reply) -> bytes:
    texts = [_utf8(reply.carrier), _utf8(reply.reasoning), reply.details]
    texts += map(_utf8, reply.arguments)
    lengths = (_COUNT.pack(len(text)) for text in texts)
    return b"".join((_COUNT.pack(len(texts)), *lengths, *texts))


def _reply_unpacked(raw: bytes) -> Reply:
    """Raises ValueError and struct.error for what is none."""
    (count,) = _COUNT.unpack_from(raw)
    lengths = [_COUNT.unpack_from(raw, 4 * place)[0] for place in range(1, count + 1)]
    ends = list(accumulate(lengths, initial=4 * (count + 1)))
    if ends[-1] != len(raw):
        raise ValueError("cut short")
    carrier, reasoning, details, *rest = (raw[a:b] for a, b in pairwise(ends))
    texts = [text.decode("utf-8", "surrogatepass") for text in (carrier, reasoning, *rest)]
    return Reply(texts[0], texts[1], details, tuple(texts[2:]))


def _or_none(digest: bytes) -> bytes:
    """Zeros stand for no digest."""
    return digest if any(digest) else b""


def _shadow(it: Shadowed) -> bytes:
    policy = _utf8(it.policy)
    head = _SHADOW.pack(len(policy), len(it.steps), it.tokens, it.estimated, len(it.held))
    held = (_HELD.pack(one.step, one.start, one.tokens) for one in it.held)
    return b"".join((head, policy, it.steps, *held))


def _shadows(raw: bytes, at: int) -> Iterator[Shadowed]:
    """Raises ValueError and struct.error for what is none."""
    if at > len(raw):
        raise ValueError("cut short")
    while at < len(raw):
        name, steps, tokens, estimated, count = _SHADOW.unpack_from(raw, at)
        start = at + _SHADOW.size
        middle, end = start + name, start + name + steps
        at = end + count * _HELD.size
        if at > len(raw):
            raise ValueError("cut short")
        policy = raw[start:middle].decode("utf-8", "surrogatepass")
        held = tuple(Held(*row) for row in _HELD.iter_unpack(raw[end:at]))
        yield Shadowed(policy, raw[middle:end], tokens, estimated, held)


def _packed(patch: Patch) -> bytes:
    roles = list(dict.fromkeys(element.role for element in patch.fresh))
    place = {role: number for number, role in enumerate(roles)}
    names = [_utf8(role) for role in roles]
    head = _PATCH.pack(patch.head, patch.tail, patch.shared, len(patch.fresh), len(roles))
    rows = (_row(element, place[element.role]) for element in patch.fresh)
    return b"".join((head, *(struct.pack(">I", len(n)) + n for n in names), *rows))


def _row(e: Element, role: int) -> bytes:
    part = _LETTERS[e.part, e.put_back]
    return _ELEMENT.pack(
        part, e.digest, e.said, e.gist, e.size, e.reasoning, role, e.text, e.length
    )


def _unpacked(raw: bytes) -> Patch:
    head, tail, shared, fresh, count = _PATCH.unpack_from(raw)
    at, roles = _PATCH.size, []
    for _ in range(count):
        (length,) = struct.unpack_from(">I", raw, at)
        roles.append(raw[at + 4 : at + 4 + length].decode("utf-8", "surrogatepass"))
        at += 4 + length
    if len(raw) - at != fresh * _ELEMENT.size:
        raise ValueError("cut short")
    return Patch(head, tail, shared, tuple(_elements(_ELEMENT.iter_unpack(raw[at:]), roles)))


def _elements(rows: Iterable[tuple[Any, ...]], roles: Sequence[str]) -> list[Element]:
    return [
        Element(part, digest, said, gist, size, reasoning, roles[role], text, length, put_back)
        for letter, digest, said, gist, size, reasoning, role, text, length in rows
        for part, put_back in (_PARTS[letter],)
    ]
