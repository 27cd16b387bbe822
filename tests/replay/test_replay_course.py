"""What is laid beside a prompt gives what the whole cache model gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core import cachemodel
from proxy.core.cachemodel import Segment, Segments, held, replayed, split
from proxy.replay.course import Past, first_difference

RULES = tuple(
    map(cachemodel.parse, ("prompt+generated", "prompt", "none", "prompt+generated:16", "prompt:7"))
)
keys = st.integers(0, 3)
rows = st.lists(keys, max_size=6).map(
    lambda row: tuple(Segment(b"%d" % key, 5 + 3 * key) for key in row)
)
generated = st.tuples(keys, st.booleans()).map(
    lambda it: (Segment(b"%d" % it[0], 5 + 3 * it[0]), *([Segment(b"x", 4)] if it[1] else []))
)


def grown(previous: Segments, kind: int, more: Segments, answer: Segments) -> Segments:
    """The next prompt: it extends, rewrites its last part, begins anew, or echoes the answer."""
    return (
        (*previous, *more),
        (*previous[:-2], *more),
        more,
        (*previous, *answer, *more),
    )[kind]


@given(st.lists(st.tuples(st.integers(0, 3), rows, generated), min_size=1, max_size=14))
def test_the_near_requests_serve_a_prompt_as_all_would(moves: list[tuple[int, Segments, Segments]]):
    served: list[tuple[Segments, Segments]] = []
    past = Past(narrow=True)
    prompt: Segments = ()
    answer: Segments = ()
    found = []
    for kind, more, reply in moves:
        if served:
            past.add(prompt, answer)
        prompt = grown(prompt, kind, more, answer)
        answer = reply
        served.append((prompt, answer))
        near, shown = past.beside(prompt)
        found.append([split(rule, [held(rule, *it) for it in near], shown) for rule in RULES])

    for at, rule in enumerate(RULES):
        whole = replayed(rule, served)
        assert list(whole) == [row[at] for row in found]


@given(rows, rows, rows)
def test_the_first_difference_is_where_two_rows_part(begin: Segments, a: Segments, b: Segments):
    one, other = begin + a, begin + b
    at = first_difference(one, other)

    assert one[:at] == other[:at]
    assert at == min(len(one), len(other)) or one[at] != other[at]


def test_a_kept_history_is_laid_beside_its_last_request_alone():
    past = Past(narrow=True)
    prompt: Segments = (Segment(b"preamble", 100),)
    for step in range(12):
        near, shown = past.beside(prompt)
        answer = (Segment(b"answer %d" % step, 10),)
        past.add(prompt, answer)
        prompt = (*prompt, *answer, Segment(b"result %d" % step, 20))

    assert 1 == len(near)
    assert 3 == len(shown)
