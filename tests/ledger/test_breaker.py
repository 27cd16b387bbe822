"""When a store is asked again that did not answer."""

from __future__ import annotations

from proxy.ledger.breaker import Breaker


def waits(breaker: Breaker, probes: int) -> list[float]:
    """The seconds before each probe of a store that stays away."""
    found = []
    for _ in range(probes):
        found.append(breaker.wait())
        breaker.probe_failed(slow=False)
    return found


def working() -> Breaker:
    breaker = Breaker(1.0, 10.0)
    breaker.probe_worked()
    breaker.worked()
    return breaker


def test_open_until_the_store_answers_for_the_first_time() -> None:
    breaker = Breaker(1.0, 10.0)

    assert breaker.open
    breaker.probe_worked()
    assert not breaker.open


def test_first_probe_comes_at_once_and_later_ones_ever_later() -> None:
    breaker = working()
    breaker.trip(slow=False)

    assert [0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0] == waits(breaker, 7)


def test_many_failures_at_once_are_one_trip() -> None:
    breaker = working()
    for _ in range(100):
        breaker.trip(slow=True)

    assert 0.0 == breaker.wait()


def test_answer_to_a_probe_does_not_reset_the_growth_and_a_served_request_does() -> None:
    breaker = working()
    breaker.trip(slow=True)
    breaker.probe_worked()
    breaker.trip(slow=True)
    grown = breaker.wait()
    breaker.probe_worked()
    breaker.worked()
    breaker.trip(slow=True)

    assert (1.0, 0.0) == (grown, breaker.wait())


def test_it_tells_slow_from_away() -> None:
    breaker = working()
    breaker.trip(slow=True)
    slow = breaker.slow
    breaker.probe_failed(slow=False)

    assert (True, False) == (slow, breaker.slow)


def test_waits_stay_bounded_for_ever() -> None:
    breaker = working()
    breaker.trip(slow=False)

    assert 10.0 == max(waits(breaker, 5_000))
