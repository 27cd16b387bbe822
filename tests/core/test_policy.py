"""Policies: read as people write them, decided from a finished step alone."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import policy
from proxy.core.artifact import Judgement
from proxy.core.contract import Drops
from proxy.core.policy import Name, Policy
from proxy.core.verdict import DROP, KEEP, Kind, Verdict, decoded


def judged(wrote: bool = False, errored: bool = False) -> Judgement:
    return Judgement(wrote, errored, "test")


def never() -> Judgement:
    raise AssertionError("this policy does not look at what the step did")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("keep", Policy(Name.KEEP)),
        (" drop\n", Policy(Name.DROP)),
        ("after_artifact", Policy(Name.AFTER_ARTIFACT)),
        ("off", Policy(Name.OFF)),
        ("keep_latest", Policy(Name.KEEP_LATEST, window=1)),
        ("keep_latest:12", Policy(Name.KEEP_LATEST, window=12)),
        ("random:0.25", Policy(Name.RANDOM, share=Decimal("0.25"))),
        ("random:0", Policy(Name.RANDOM, share=Decimal(0))),
        ("random:1", Policy(Name.RANDOM, share=Decimal(1))),
        ("horizon", Policy(Name.HORIZON)),
        ("horizon:320", Policy(Name.HORIZON, remaining=320)),
        ("observe", Policy(Name.OBSERVE)),
    ],
)
def test_a_policy_is_read_as_it_is_written(text: str, expected: Policy) -> None:
    assert expected == policy.parse(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("kep", "known: keep, drop, after_artifact"),
        ("", "known: keep"),
        ("KEEP", "known: keep"),
        ("keep:1", "takes no value; write 'keep'"),
        ("drop:", "takes no value"),
        ("keep_latest:", "whole number of steps from 1"),
        ("keep_latest:0", "whole number of steps from 1"),
        ("keep_latest:-1", "whole number of steps from 1"),
        ("keep_latest:1.5", "whole number of steps from 1"),
        ("keep_latest:²", "whole number of steps from 1"),
        ("keep_latest:" + "9" * 5_000, "whole number of steps from 1"),
        ("random", "share from 0 to 1"),
        ("random:", "share from 0 to 1"),
        ("random:half", "share from 0 to 1"),
        ("random:1.01", "share from 0 to 1"),
        ("random:-0.1", "share from 0 to 1"),
        ("random:nan", "share from 0 to 1"),
        ("random:snan", "share from 0 to 1"),
        ("random:inf", "share from 0 to 1"),
        ("horizon:", "whole number of requests or positions from 1"),
        ("horizon:0", "whole number of requests or positions from 1"),
        ("horizon:-3", "whole number of requests or positions from 1"),
        ("horizon:1e3", "whole number of requests or positions from 1"),
        ("horizon:²", "whole number of requests or positions from 1"),
        ("horizon:" + "9" * 5_000, "whole number of requests or positions from 1"),
        ("observe:drop", "takes no value; write 'observe'"),
    ],
)
def test_what_is_no_policy_is_told_with_what_is(text: str, wanted: str) -> None:
    with pytest.raises(ValueError, match="policy") as told:
        policy.parse(text)

    assert repr(text[:40]) in str(told.value)
    assert wanted in str(told.value)


policies = st.one_of(
    st.sampled_from([Policy(n) for n in (Name.KEEP, Name.DROP, Name.AFTER_ARTIFACT, Name.OFF)]),
    st.builds(lambda n: Policy(Name.KEEP_LATEST, window=n), st.integers(1, 100_000)),
    st.builds(lambda p: Policy(Name.RANDOM, share=p), st.decimals(0, 1, places=6)),
    st.builds(lambda n: Policy(Name.HORIZON, remaining=n), st.none() | st.integers(1, 999_999_999)),
    st.just(Policy(Name.OBSERVE)),
)


@given(policies)
def test_a_policy_is_written_as_it_is_read(rule: Policy) -> None:
    assert rule == policy.parse(str(rule))


def test_every_policy_is_told_about_and_every_name_is_one() -> None:
    assert [about.form for about in policy.ABOUT] == list(policy.NAMES)
    assert {name.value for name in Name} == {form.partition(":")[0] for form in policy.NAMES}
    for about in policy.ABOUT:
        rule = policy.parse(about.form.replace(":n", ":2").replace(":p", ":0.5"))
        assert rule.append_only is (about.prefix == "append-only")


CASES = [
    ("keep", True, 0, KEEP),
    ("off", True, 0, KEEP),
    ("observe", True, 0, KEEP),
    ("observe", False, 0, KEEP),
    ("horizon", True, 0, KEEP),
    ("horizon:999", True, 0, KEEP),
    ("drop", True, 0, DROP),
    ("drop", False, 0, KEEP),
    ("random:1", True, 0, DROP),
    ("random:1", False, 0, KEEP),
    ("random:0", True, 0, KEEP),
    ("keep_latest:2", True, 0, None),
    ("keep_latest:2", True, 1, None),
    ("keep_latest:2", True, 2, DROP),
    ("keep_latest:2", False, 1, None),
    ("keep_latest:2", False, 2, KEEP),
]


@pytest.mark.parametrize(("rule", "complete", "later", "expected"), CASES)
def test_a_step_is_decided(rule: str, complete: bool, later: int, expected: Verdict | None) -> None:
    assert expected == policy.decide(policy.parse(rule), complete, later, b"said", never)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (judged(), KEEP),
        (judged(wrote=True), DROP),
        (judged(errored=True), DROP),
        (judged(wrote=True, errored=True), DROP),
    ],
)
def test_after_artifact_drops_what_left_something_or_failed(
    seen: Judgement, expected: Verdict
) -> None:
    rule = policy.parse("after_artifact")

    assert expected == policy.decide(rule, True, 0, b"", lambda: seen)
    assert KEEP == policy.decide(rule, False, 0, b"", never)


@pytest.mark.parametrize(("pays", "expected"), [(True, DROP), (False, KEEP)])
def test_horizon_drops_where_that_pays_and_asks_of_no_open_step(
    pays: bool, expected: Verdict
) -> None:
    rule = policy.parse("horizon")

    assert expected == policy.decide(rule, True, 3, b"", never, lambda: pays)
    assert KEEP == policy.decide(rule, False, 0, b"", never, lambda: True)


@given(st.binary(max_size=20), st.integers(0, 50))
def test_append_time_policies_do_not_look_at_what_came_later(said: bytes, later: int) -> None:
    for text in ("keep", "drop", "random:0.5", "after_artifact"):
        rule = policy.parse(text)
        first = policy.decide(rule, True, 0, said, lambda: judged(wrote=True))
        assert first == policy.decide(rule, True, later, said, lambda: judged(wrote=True))


def test_random_drops_about_its_share_and_the_same_steps_everywhere() -> None:
    rule = policy.parse("random:0.3")
    verdicts = [policy.decide(rule, True, 0, b"%d" % n, never) for n in range(2_000)]

    assert verdicts == [policy.decide(rule, True, 5, b"%d" % n, never) for n in range(2_000)]
    assert 500 < verdicts.count(DROP) < 700


@given(st.decimals(0, 1), st.decimals(0, 1), st.binary(max_size=8))
def test_a_larger_share_drops_all_that_a_smaller_one_does(
    a: Decimal, b: Decimal, said: bytes
) -> None:
    small, large = (Policy(Name.RANDOM, share=share) for share in sorted((a, b)))

    if DROP == policy.decide(small, True, 0, said, never):
        assert DROP == policy.decide(large, True, 0, said, never)


@given(
    st.sampled_from((KEEP, DROP))
    | st.builds(lambda t: Verdict(Kind.REPLACE, t), st.text() | st.just("\ud83d"))
)
def test_a_verdict_is_the_same_after_rest(verdict: Verdict) -> None:
    assert verdict == decoded(verdict.encoded())


@pytest.mark.parametrize("raw", [b"", b"x", b"keep", b"dd", b"r\xff", b"K"])
def test_a_verdict_that_cannot_be_read_counts_as_absent(raw: bytes) -> None:
    assert decoded(raw) is None


# What a contract allows


REPLACED = Verdict(Kind.REPLACE, "short")
OTHERS = ("after_artifact", "random:1", "keep_latest:1")


@pytest.mark.parametrize(
    ("drops", "rule", "proposed", "standing", "expected"),
    [
        (Drops.ANY, "after_artifact", DROP, [KEEP], DROP),
        (Drops.NEVER, "drop", DROP, [], KEEP),
        (Drops.NEVER, "drop", REPLACED, [DROP], KEEP),
        (Drops.ALL_OR_NOTHING, "drop", DROP, [], DROP),
        (Drops.ALL_OR_NOTHING, "drop", KEEP, [], KEEP),
        (Drops.ALL_OR_NOTHING, "drop", DROP, [KEEP], KEEP),
        (Drops.ALL_OR_NOTHING, "keep", KEEP, [DROP], DROP),
        (Drops.ALL_OR_NOTHING, "keep", KEEP, [REPLACED], DROP),
        *[(Drops.ALL_OR_NOTHING, rule, DROP, [], KEEP) for rule in OTHERS],
        *[(Drops.ALL_OR_NOTHING, rule, DROP, [DROP, DROP], DROP) for rule in OTHERS],
    ],
)
def test_a_verdict_gives_way_to_the_nearest_that_is_allowed(
    drops: Drops, rule: str, proposed: Verdict, standing: list[Verdict], expected: Verdict
) -> None:
    assert expected == policy.clamped(drops, policy.parse(rule), proposed, standing)


verdicts = st.dictionaries(st.integers(0, 5), st.sampled_from((KEEP, DROP, REPLACED)), max_size=6)


@given(verdicts)
def test_no_mixture_leaves_where_it_is_all_or_nothing(standing: dict[int, Verdict]) -> None:
    left = policy.carried_out(Drops.ALL_OR_NOTHING, 6, standing)

    dropped = {at for at, verdict in left.items() if verdict.kind is not Kind.KEEP}
    assert dropped == (set(range(6)) if standing.get(0, KEEP) != KEEP else set())


@given(verdicts)
def test_what_stands_is_carried_out_where_it_is_allowed_and_nowhere_else(
    standing: dict[int, Verdict],
) -> None:
    assert standing is policy.carried_out(Drops.ANY, 6, standing)
    assert dict.fromkeys(standing, KEEP) == policy.carried_out(Drops.NEVER, 6, standing)
