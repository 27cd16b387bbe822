"""The laws: what holds for every history, every append-time policy and every way of writing."""

from __future__ import annotations

from itertools import cycle

from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.core import turn
from proxy.core.prefix import Cause
from proxy.core.turn import Unreadable
from proxy.memo import Memo
from tests.laws import checks, reading
from tests.laws.histories import History, body_of, histories
from tests.laws.pipeline import Ledger, Worker

APPEND_ONLY = ("keep", "drop", "after_artifact", "random:0.5", "observe")
policies = st.sampled_from(APPEND_ONLY)


@given(histories(), policies)
def test_what_leaves_is_a_prefix_of_what_leaves_later(history: History, rule: str) -> None:
    checks.grows(history, Worker(rule))


@given(histories(), policies)
def test_it_grows_the_same_where_bodies_are_remembered(history: History, rule: str) -> None:
    plain, remembering = Worker(rule), Worker(rule, memo=Memo(7, 1 << 20))
    for body in history.bodies():
        assert plain.send(body) == remembering.send(body)


@given(histories())
def test_where_nothing_is_removed_the_very_bytes_leave(history: History) -> None:
    for rule in ("keep", "off", "observe"):
        worker = Worker(rule)
        for body in history.bodies():
            assert body is worker.send(body).body


@given(histories(), policies)
def test_only_reasoning_is_taken_out(history: History, rule: str) -> None:
    worker = Worker(rule)
    for body in history.bodies():
        checks.takes_only_reasoning(body, worker.send(body).body)


@given(histories())
def test_all_reasoning_of_finished_steps_is_dropped_under_drop(history: History) -> None:
    body = history.bodies()[-1]

    left = reading.decoded(Worker("drop").send(body).body)["messages"]

    assert [] == [message for message in left if reading.reasoning_in(message)]


@given(histories(), policies)
def test_the_same_request_twice_leaves_the_same_bytes_and_adds_no_verdict(
    history: History, rule: str
) -> None:
    checks.sends_the_same_twice(history, Worker(rule))


@given(
    histories(),
    st.lists(policies, min_size=2, max_size=4),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 9), st.booleans()), min_size=2, max_size=12
    ),
)
def test_workers_with_different_policies_send_one_truth(
    history: History, rules: list[str], turns: list[tuple[int, int, bool]]
) -> None:
    checks.agree(history, [Worker(rule) for rule in rules], turns)


@given(histories(), histories(), policies, policies, st.integers(1, 5))
def test_a_fork_shares_the_truth_of_what_it_shares(
    history: History, other: History, rule: str, second: str, at: int
) -> None:
    shared = history.chunks[: 1 + at % len(history.chunks)]
    fork = History(history.style, history.before, history.after, (*shared, *other.chunks[1:]))
    ledger = Ledger()
    checks.grows(history, Worker(rule, ledger))

    checks.grows(fork, Worker(second, ledger))


@given(histories(), st.lists(st.booleans(), min_size=1, max_size=7), policies)
def test_what_leaves_only_grows_whatever_a_horizon_says_from_one_request_to_the_next(
    history: History, answers: list[bool], other: str
) -> None:
    """`horizon` is outside law 6: it may say of a step now this, now that. What stands, stands."""
    said = cycle(answers)
    worker = Worker("horizon", pays=lambda index: next(said))

    checks.grows(history, worker)
    checks.sends_the_same_twice(history, worker)
    checks.grows(history, Worker(other, worker.ledger))


@given(histories(), policies)
def test_an_empty_ledger_gives_the_bytes_of_a_full_one(history: History, rule: str) -> None:
    checks.rederives(history, lambda: Worker(rule))


@given(histories(), policies)
def test_calls_keep_their_results_and_sealed_reasoning_stays_whole(
    history: History, rule: str
) -> None:
    worker = Worker(rule)
    for body in history.bodies():
        checks.is_legal(body, worker.send(body).body)


@given(
    histories(),
    st.lists(st.sampled_from((*APPEND_ONLY, "keep_latest:1", "keep_latest:2")), max_size=6),
)
def test_a_verdict_once_settled_is_never_changed(history: History, rules: list[str]) -> None:
    ledger = Ledger()
    for rule, body in zip(rules, history.bodies(), strict=False):
        before = dict(ledger.verdicts)
        Worker(rule, ledger).send(body)
        assert before == {link: ledger.verdicts[link] for link in before}


@given(histories(odd=False, max_steps=4), st.integers(1, 2))
def test_keep_latest_keeps_its_window_and_says_that_it_rewrites(
    history: History, window: int
) -> None:
    worker = Worker(f"keep_latest:{window}")
    for body in history.bodies():
        sealed = worker.send(body)
        finding = sealed.finding
        assert finding.cause in (Cause.COLD_START, Cause.EXTENDED, Cause.SELF)


@given(histories(max_steps=3), st.integers(0, 3))
def test_a_history_that_ends_in_an_open_step_still_grows(history: History, cut: int) -> None:
    """The step that was first seen incomplete is kept, and stays kept."""
    messages = history.messages(len(history.chunks))
    sizes = range(len(history.chunks[0]), len(messages) + 1)
    worker = Worker("drop")

    sent = [worker.send(body_of(history, messages[:size])) for size in sizes]

    for shorter, longer in zip(sent, sent[1:], strict=False):
        checks.extends(shorter, longer)


@given(histories(), policies)
def test_a_client_that_only_appends_is_never_told_of_a_break(history: History, rule: str) -> None:
    worker = Worker(rule)
    causes = [worker.send(body).finding.cause for body in history.bodies()]

    assert [Cause.COLD_START] + [Cause.EXTENDED] * (len(causes) - 1) == causes


@given(histories(), policies)
def test_what_is_counted_is_what_there_is(history: History, rule: str) -> None:
    body = history.bodies()[-1]

    sealed, kept = Worker(rule).send(body), Worker("keep").send(body)

    assert kept.kept == sealed.kept + sealed.dropped
    assert kept.kept_bytes == sealed.kept_bytes + sealed.dropped_bytes
    assert sealed.dropped_bytes == sum(
        a.size - b.size for a, b in zip(kept.elements, sealed.elements, strict=True)
    )


_SCRAPS = (
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"null", b"0", b"-", b"", b"\xff", b"<think>",
    b"</think>", b"\\u003c", b"\\ud83d", b'"messages":', b'"role":"assistant",',
    b'"reasoning_content":"x",', b'"reasoning_details":[{"text":"y"}],',
)  # fmt: skip
hurts = st.tuples(st.integers(0, 1 << 16), st.integers(0, 20), st.sampled_from(_SCRAPS))
scars = st.lists(hurts, min_size=1, max_size=3)


@given(histories(max_steps=3), scars)
def test_a_body_that_is_hurt_anywhere_is_pruned_lawfully_or_not_at_all(
    history: History, made: list[tuple[int, int, bytes]]
) -> None:
    body = history.bodies()[-1]
    for at, size, scrap in made:
        at %= len(body)
        body = body[:at] + scrap + body[at + size :]
    try:
        left = Worker("drop").send(body).body
    except Unreadable:
        return
    try:
        reading.decoded(body)
    except (ValueError, RecursionError):
        return

    checks.takes_only_reasoning(body, left)
    assert left == Worker("drop").send(left).body


@given(histories())
def test_another_scope_shares_no_link(history: History) -> None:
    body = history.bodies()[-1]
    one, two = turn.read(body, b"a" * 16), turn.read(body, b"b" * 16)

    assume(one.messages)

    assert {m.link for m in one.messages}.isdisjoint(m.link for m in two.messages)
