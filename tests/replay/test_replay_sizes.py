"""Sizes of elements: from recorded counts where there are any, else estimated."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core import fingerprint
from proxy.core.cachemodel import size
from proxy.core.sent import Element
from proxy.core.usage import Usage
from proxy.replay.sessions import encoded
from proxy.replay.sizes import Foretold, Sizes, shared


def element(text: str, role: str = "user", **more: str) -> Element:
    body = encoded({"role": role, "content": text, **more})
    return fingerprint.read(body, 0, len(body), b"").kept


QUESTION = element("what is the answer to all of it")
REPLY = element("forty-two", "assistant", reasoning_content="think " * 30)
RESULT = element("a long result " * 10)
MORE = element("another one " * 3)


def tokens(sizes: Sizes, *elements: Element) -> int:
    return sum(size(sizes.segments(it)) for it in elements)


def test_a_prompt_is_what_was_counted():
    sizes = Sizes()
    sizes.take_prompt((QUESTION, RESULT), Usage(input=333))

    assert 333 == tokens(sizes, QUESTION, RESULT)


def test_what_is_new_is_the_difference_less_the_reply():
    sizes = Sizes()
    sizes.take_prompt((QUESTION,), Usage(input=50))
    sizes.take_reply(REPLY, Usage(output=40, reasoning=30))
    sizes.take_prompt((QUESTION, REPLY, RESULT), Usage(input=120))

    assert [30, 10] == [it.tokens for it in sizes.segments(REPLY)]
    assert 30 == tokens(sizes, RESULT)


def test_reasoning_that_is_not_counted_apart_is_a_share_of_the_reply_by_size():
    sizes = Sizes()
    sizes.take_reply(REPLY, Usage(output=40))
    thought, said = sizes.segments(REPLY)

    assert 40 == thought.tokens + said.tokens
    assert round(40 * REPLY.reasoning / REPLY.size) == thought.tokens


def test_a_prompt_is_foretold_from_the_counts_before_it_and_not_from_its_own():
    sizes = Sizes(4.0)
    _, first = sizes.take_prompt((QUESTION,), Usage(input=round(QUESTION.size / 4)))
    sizes.take_reply(REPLY, Usage(output=40, reasoning=30))
    _, second = sizes.take_prompt((QUESTION, REPLY, RESULT), Usage(input=1_000))
    known = round(QUESTION.size / 4) + 40

    assert first is None
    assert Foretold(known + round(RESULT.size / 4), 1_000) == second


def test_counts_that_leave_nothing_for_what_is_new_are_not_taken_in():
    sizes = Sizes()
    sizes.take_prompt((QUESTION,), Usage(input=50))
    fits, _ = sizes.take_prompt((QUESTION, RESULT), Usage(input=40))

    assert not fits
    assert tokens(sizes, RESULT) > 0


def test_without_counts_bytes_are_divided_by_what_a_token_of_the_model_has():
    sizes = Sizes(8.0)
    fits, foretold = sizes.take_prompt((RESULT,), Usage())

    assert (False, None) == (fits, foretold)
    assert round(RESULT.size / 8) == tokens(sizes, RESULT)


def test_counts_teach_what_a_token_has():
    sizes = Sizes(4.0)
    sizes.take_prompt((RESULT,), Usage(input=RESULT.size * 100))

    assert sizes.ratio < 1


@given(st.integers(0, 10**9), st.lists(st.integers(0, 10**6), min_size=1))
def test_shares_add_up_to_the_whole_and_are_never_negative(total: int, sizes: list[int]):
    shares = shared(total, sizes)

    assert total == sum(shares)
    assert min(shares) >= 0


def test_equal_sizes_share_evenly_and_none_evenly_too():
    assert [5, 5] == shared(10, [3, 3])
    assert [5, 5] == shared(10, [0, 0])
