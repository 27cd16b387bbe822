"""Forms that are remembered: worked out once, placed where the message stands, and bounded."""

from __future__ import annotations

import json
from typing import Any

from proxy import forms as rooms
from proxy.core import dialect, fingerprint, form
from proxy.core.dialect import Wire
from proxy.core.fingerprint import Message
from proxy.core.replies import Reply
from proxy.core.verdict import Kind
from proxy.core.wire import chat
from proxy.forms import Forms

WAS = Reply("reasoning_content", "why")
RESTORES = Wire(restores=True)


def assistant(**more: Any) -> bytes:
    return json.dumps({"role": "assistant", "content": "said", **more}).encode()


def read(raw: bytes, before: bytes = b"[") -> tuple[bytes, Message]:
    body = before + raw + b"]"
    return body, fingerprint.read(body, len(before), len(before) + len(raw), b"")


def test_a_form_is_placed_where_its_message_stands() -> None:
    forms, raw = Forms(7), assistant()
    for before in (b"[", b"[1,", b'["longer",'):
        body, message = read(raw, before)
        shape = forms.shape(body, message, Kind.KEEP, WAS, RESTORES)

        assert shape is not None
        out = json.loads(chat.apply(body, shape.edits))
        assert {"reasoning_content": "why", **json.loads(raw)} == out[-1]


def test_a_form_is_of_one_message_verdict_reply_and_wire() -> None:
    forms, raw = Forms(7), assistant(reasoning="x")
    asked: list[tuple[bytes, Kind, Reply | None, Wire]] = [
        (raw, Kind.KEEP, WAS, RESTORES),
        (raw, Kind.DROP, None, RESTORES),
        (raw, Kind.KEEP, None, Wire(reads=("reasoning_content",))),
        (raw, Kind.KEEP, Reply("reasoning_content", "other"), RESTORES),
        (assistant(), Kind.KEEP, WAS, RESTORES),
        (raw, Kind.KEEP, None, Wire()),
    ]
    for one in (*asked, *asked):
        body, message = read(one[0])
        expected = form.shape(body, message, *one[1:])
        assert expected == forms.shape(body, message, *one[1:])


def test_forms_hold_no_more_than_they_may_and_the_latest_stay() -> None:
    forms = Forms(7)
    thought = "why " * 8_000
    for at in range(rooms.MOST_BYTES // len(thought) + 10):
        body, message = read(b'{"role":"assistant","n":%d}' % at)
        reply = Reply("reasoning_content", thought)
        assert forms.shape(body, message, Kind.KEEP, reply, RESTORES) is not None

    assert rooms.MOST_BYTES >= forms._held > rooms.MOST_BYTES // 2
    assert forms._held == sum(weight for _, weight in forms._found.values())


def test_replies_that_forms_are_known_by_are_weighed_too() -> None:
    """What a client hands back as it was stays so, and that is known by the reply."""
    forms = Forms(7)
    for at in range(100):
        reply = Reply("reasoning_content", "why " * 10_000 + str(at), arguments=("x" * 10_000,))
        body, message = read(assistant(reasoning_content=reply.reasoning))
        assert forms.shape(body, message, Kind.KEEP, reply, RESTORES) is None

    assert 100 * 50_000 < forms._held < 100 * 60_000
    assert forms._held == sum(weight for _, weight in forms._found.values())


def test_a_form_that_is_very_large_is_worked_out_and_not_held() -> None:
    forms, (body, message) = Forms(7), read(assistant())
    reply = Reply("reasoning_content", "why " * 100_000)

    assert forms.shape(body, message, Kind.KEEP, reply, RESTORES) is not None
    assert 0 == len(forms._found)


def test_a_pinned_wire_is_read_once_and_wires_are_bounded() -> None:
    forms = Forms(7)
    raw = dialect.packed(RESTORES)

    assert RESTORES == forms.wire(raw)
    assert forms.wire(raw) is forms.wire(raw)
    for at in range(rooms._MOST_WIRES + 10):
        forms.wire(dialect.packed(Wire(writes=str(at))))
    assert rooms._MOST_WIRES >= len(forms._wires)
    assert RESTORES == forms.wire(raw)


def test_a_wire_that_a_later_version_pinned_changes_nothing() -> None:
    assert Wire() == Forms(7).wire(b"not one of ours")
