"""The form at rest: what is written is read; what is not ours, or was touched, is absent."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.replies import Reply
from proxy.core.sent import Element, Held, Part, Sent, Shadowed
from proxy.core.verdict import DROP, KEEP, Kind, Verdict
from proxy.errors import SettingsError
from proxy.ledger.codec import NO_PARENT, Body, Codec, policy, read_policy
from proxy.ledger.contract import Entry, Grade
from proxy.ledger.trail import Patch, difference, whole
from tests.ledger.words import digest, elements, sent

KEY = bytes(range(32)).hex()
LINK = digest("link")
A_REPLY = Reply("reasoning", "ä secret", b"[]", ("{}",))

texts = st.text(st.characters(), max_size=30)
digests = st.binary(min_size=16, max_size=16)
counts = st.none() | st.integers(0, 2**40)
verdicts = st.sampled_from([KEEP, DROP]) | texts.map(lambda text: Verdict(Kind.REPLACE, text))
element_values = st.builds(
    Element, st.sampled_from(Part), digests, digests, st.binary(min_size=8, max_size=8),
    st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), texts,
    st.binary(min_size=8, max_size=8), st.integers(0, 2**32 - 1), st.booleans(),
)  # fmt: skip
patches = st.builds(
    Patch, st.integers(0, 99), st.integers(0, 99), st.integers(0, 99),
    st.lists(element_values, max_size=5).map(tuple),
)  # fmt: skip
maybe_digests = st.just(b"") | digests.filter(any)
held = st.builds(Held, st.integers(0, 2**20), st.integers(0, 2**40), st.integers(0, 2**40))
shadows = st.builds(
    Shadowed, texts, st.binary(max_size=9), st.integers(0, 2**40), st.booleans(),
    st.lists(held, max_size=3).map(tuple),
)  # fmt: skip
heads = st.builds(
    Sent, digests, digests, st.just(()), st.floats(0, 4e9), texts, counts, counts, counts,
    maybe_digests, maybe_digests, counts, counts, st.booleans(),
    st.lists(shadows, max_size=3).map(tuple),
)  # fmt: skip
replies = st.builds(Reply, texts, texts, st.binary(), st.lists(texts, max_size=4).map(tuple))
entries = st.builds(Entry, digests, st.binary(), st.none() | st.binary())


@pytest.fixture(scope="module", params=["plain", "encrypted"])
def codec(request: pytest.FixtureRequest) -> Codec:
    return Codec() if request.param == "plain" else encrypted()


def encrypted(key: str = KEY) -> Codec:
    pytest.importorskip("cryptography", reason="the optional extra is not installed")
    return Codec(key)


@given(verdict=verdicts)
def test_verdict_is_read_as_it_was_written(codec: Codec, verdict: Verdict) -> None:
    assert verdict == codec.read_verdict(LINK, codec.verdict(LINK, verdict))


@given(head=heads)
def test_head_is_read_as_it_was_written(codec: Codec, head: Sent) -> None:
    assert head == codec.read_head(head.link, codec.head(head))


def test_head_that_was_cut_short_anywhere_is_absent_or_tells_of_fewer_shadows() -> None:
    rows = tuple(Shadowed(name, b"\x05", 9, False, (Held(1, 2, 3),)) for name in ("one", "two"))
    whole = sent(LINK, (), shadows=rows)
    raw = Codec().head(whole)

    found = [Codec().read_head(LINK, raw[:end]) for end in range(len(raw) + 1)]

    assert whole == found[-1]
    assert [(), rows[:1]] == [it.shadows for it in found[:-1] if it is not None]


@given(patch=patches, parent=digests, depth=st.integers(0, 255))
def test_body_is_read_as_it_was_written(
    codec: Codec, patch: Patch, parent: bytes, depth: int
) -> None:
    body = Body(parent, depth, patch)

    assert body == codec.read_body(LINK, codec.body(LINK, body))


@given(entry=entries)
def test_entry_is_read_as_it_was_written(codec: Codec, entry: Entry) -> None:
    assert entry == codec.read_entry(entry.digest, codec.entry(entry))


def test_outcome_is_read_as_it_was_written(codec: Codec) -> None:
    outcome = b'{"turn":3,"cause":null,"tokens":{"read":12}}'
    told = {"turn": 3, "cause": None, "tokens": {"read": 12}}

    assert told == codec.read_outcome(codec.outcome(outcome))


@given(reply=replies)
def test_reply_is_read_as_it_was_written(codec: Codec, reply: Reply) -> None:
    id, raw = codec.reply(reply)

    assert reply == codec.read_reply(id, raw)


@given(one=replies, another=replies)
def test_equal_replies_and_no_others_share_an_id(codec: Codec, one: Reply, another: Reply) -> None:
    assert (one == another) == (codec.reply(one)[0] == codec.reply(another)[0])


def test_every_field_is_at_rest() -> None:
    assert ("carrier", "reasoning", "details", "arguments") == Reply.__struct_fields__
    assert (
        "link", "outgoing", "elements", "at", "upstream", "prompt_tokens", "output_tokens",
        "cached_tokens", "reply", "conversation", "reasoning_tokens", "dropped_tokens",
        "dropped_estimated", "shadows",
    ) == Sent.__struct_fields__  # fmt: skip
    assert ("policy", "steps", "tokens", "estimated", "held") == Shadowed.__struct_fields__
    assert ("step", "start", "tokens") == Held.__struct_fields__


def test_id_tells_nothing_of_a_reply_to_who_has_no_key() -> None:
    ids = {codec.reply(A_REPLY)[0] for codec in (Codec(), encrypted(), encrypted("ff" * 32))}

    assert 3 == len(ids)


@given(value=st.binary(), root=digests)
def test_pin_is_read_as_it_was_written(codec: Codec, value: bytes, root: bytes) -> None:
    raw = codec.pin(root, "encoding:0a", value)

    assert value == codec.read_pin(root, "encoding:0a", raw)


@given(value=st.binary(), name=texts, until=st.floats(0, 4e9))
def test_lesson_is_read_as_it_was_written(
    codec: Codec, value: bytes, name: str, until: float
) -> None:
    assert (value, until) == codec.read_lesson(name, codec.lesson(name, value, until))


@given(success=st.booleans(), score=st.none() | st.floats(-1e9, 1e9), at=st.floats(0, 4e9))
def test_grade_is_read_as_it_was_written(
    codec: Codec, success: bool, score: float | None, at: float
) -> None:
    grade = Grade(success, score, at)

    assert grade == codec.read_grade(LINK, codec.grade(LINK, grade))


def test_label_is_known_again_and_tells_nothing_to_who_has_no_key() -> None:
    labels = [codec.label("a task") for codec in (Codec(), encrypted(), encrypted("ff" * 32))]

    assert 3 == len(set(labels))
    assert {16} == set(map(len, labels))
    assert labels[1] == encrypted().label("a task")
    assert labels[0] != Codec().label("another")
    assert b"a task" not in labels[0]


def test_outcome_that_is_no_object_is_no_outcome(codec: Codec) -> None:
    assert None is codec.read_outcome(codec.outcome(b"[1]"))
    assert None is codec.read_outcome(codec.outcome(b"{"))


Read = Callable[[Codec, bytes], object]
Write = Callable[[Codec], bytes]

READERS: list[Read] = [
    lambda codec, raw: codec.read_verdict(LINK, raw),
    lambda codec, raw: codec.read_head(LINK, raw),
    lambda codec, raw: codec.read_body(LINK, raw),
    lambda codec, raw: codec.read_entry(LINK, raw),
    lambda codec, raw: codec.read_outcome(raw),
    lambda codec, raw: codec.read_reply(codec.reply(A_REPLY)[0], raw),
    lambda codec, raw: codec.read_pin(LINK, "encoding", raw),
    lambda codec, raw: codec.read_lesson("encoding", raw),
    lambda codec, raw: codec.read_grade(LINK, raw),
]
WRITERS: list[Write] = [
    lambda codec: codec.verdict(LINK, Verdict(Kind.REPLACE, "ä text")),
    lambda codec: codec.head(sent(LINK, elements(1), prompt_tokens=3)),
    lambda codec: codec.body(LINK, Body(NO_PARENT, 0, whole(elements(1, 2)))),
    lambda codec: codec.entry(Entry(LINK, b"left", b"came")),
    lambda codec: codec.outcome(b'{"turn":1}'),
    lambda codec: codec.reply(A_REPLY)[1],
    lambda codec: codec.pin(LINK, "encoding", b""),
    lambda codec: codec.lesson("encoding", b"empty", 1.0),
    lambda codec: codec.grade(LINK, Grade(True, 0.5, 1.0)),
]
PAIRS = list(zip(WRITERS, READERS, strict=True))


@pytest.mark.parametrize("read", READERS)
@given(raw=st.binary(max_size=200))
def test_anything_can_be_read_without_a_failure(codec: Codec, read: Read, raw: bytes) -> None:
    for version in (b"", b"\x01", b"\x02", b"\x03", bytes(17) + b"\x01", bytes(16) + b"\x01"):
        read(codec, version + raw)


@pytest.mark.parametrize(("write", "read"), PAIRS)
def test_what_is_cut_short_or_of_another_version_is_absent(
    codec: Codec, write: Write, read: Read
) -> None:
    raw = write(codec)
    version = next(at for at in (0, 16, 17) if raw[at] in (1, 2))

    assert read(codec, raw) is not None
    assert read(codec, raw[: version + 1]) is None
    assert read(codec, raw[:version] + b"\x09" + raw[version + 1 :]) is None


@pytest.mark.parametrize(("write", "read"), PAIRS)
def test_sealed_value_opens_with_its_own_key_alone(write: Write, read: Read) -> None:
    raw = write(encrypted())

    assert read(Codec(), raw) is None
    assert read(encrypted("ff" * 32), raw) is None
    assert read(encrypted(), raw[:-1] + bytes((raw[-1] ^ 1,))) is None


@pytest.mark.parametrize(("write", "read"), PAIRS)
def test_plain_value_is_read_where_encryption_was_turned_on_later(write: Write, read: Read) -> None:
    assert read(Codec(), write(Codec())) == read(encrypted(), write(Codec()))


def test_sealed_value_does_not_open_under_another_name() -> None:
    codec = encrypted()
    raw = codec.verdict(LINK, DROP)

    assert codec.read_verdict(digest("other link"), raw) is None
    assert codec.read_entry(LINK, raw) is None
    assert codec.read_pin(digest("other"), "encoding", codec.pin(LINK, "encoding", b"")) is None
    assert codec.read_lesson("other", codec.lesson("encoding", b"", 1.0)) is None
    assert codec.read_grade(digest("other"), codec.grade(LINK, Grade(True))) is None
    assert codec.read_reply(LINK, codec.reply(A_REPLY)[1]) is None


def test_sealed_text_is_not_in_what_is_stored() -> None:
    codec = encrypted()

    assert b"secret" not in codec.verdict(LINK, Verdict(Kind.REPLACE, "a secret"))
    assert b"secret" not in codec.entry(Entry(LINK, b"a secret", b"the secret"))
    assert b"secret" not in codec.outcome(b'{"label":"secret"}')
    assert b"secret" not in codec.reply(A_REPLY)[1]
    assert b"secret" not in codec.pin(LINK, "order", b"secret")
    assert b"secret" not in codec.lesson("name", b"secret", 1.0)
    assert codec.verdict(LINK, DROP) != codec.verdict(LINK, DROP)


@pytest.mark.parametrize(
    "key",
    [
        bytes(range(32)).hex(),
        base64.b64encode(b"\xfb" * 32).decode(),
        base64.urlsafe_b64encode(b"\xfb" * 32).decode() + "\n",
    ],
)
def test_key_is_32_bytes_in_hex_or_base64(key: str) -> None:
    codec = encrypted(key)

    assert DROP == codec.read_verdict(LINK, codec.verdict(LINK, DROP))


@pytest.mark.parametrize("key", ["password", "00" * 16, "ä", base64.b64encode(bytes(31)).decode()])
def test_key_of_another_form_is_refused_and_not_repeated(key: str) -> None:
    pytest.importorskip("cryptography", reason="the optional extra is not installed")

    with pytest.raises(SettingsError) as refused:
        Codec(key)

    assert key not in str(refused.value)


def bodies(codec: Codec, *lists: tuple[Element, ...]) -> tuple[bytes, list[bytes]]:
    """The bodies of a row of records, each against the one before it, the last one's first."""
    raws: list[bytes] = []
    parent, outgoing = NO_PARENT, b""
    base: tuple[Element, ...] = ()
    for depth, these in enumerate(lists):
        outgoing = sent(LINK, these).outgoing
        raws.append(codec.body(outgoing, Body(parent, depth, difference(base, these))))
        parent, base = outgoing, these
    return outgoing, raws[::-1]


def test_record_is_put_together_from_its_parents(codec: Codec) -> None:
    outgoing, raws = bodies(codec, elements(1), elements(1, 2), elements("x", 2, 3))

    assert (elements("x", 2, 3), 2) == codec.assembled(outgoing, raws, None)


def test_record_is_put_together_from_the_one_at_hand(codec: Codec) -> None:
    outgoing, raws = bodies(codec, elements(1), elements(1, 2), elements(1, 2, 3))
    base = sent(LINK, elements(1))

    assert (elements(1, 2, 3), 2) == codec.assembled(outgoing, raws[:-1], base)
    assert (elements(1), 0) == codec.assembled(base.outgoing, [], base)


def test_record_whose_parents_are_not_there_is_absent(codec: Codec) -> None:
    outgoing, raws = bodies(codec, elements(1), elements(1, 2), elements(1, 2, 3))

    assert codec.assembled(outgoing, raws[:-1], None) is None
    assert codec.assembled(outgoing, raws[:-1], sent(LINK, elements("another"))) is None
    assert codec.assembled(outgoing, [raws[0], b"", raws[2]], None) is None
    assert codec.assembled(outgoing, [], None) is None


@pytest.mark.parametrize("name", ["keep", "keep_latest:2", None])
def test_policy_is_read_as_it_was_written(name: str | None) -> None:
    assert name == read_policy(policy(name))


@pytest.mark.parametrize("raw", [None, 1, b"", b"\x01", b"keep", b"\x01\xff", b"\x02keep"])
def test_policy_that_cannot_be_read_is_none(raw: object) -> None:
    assert read_policy(raw) is None
