"""How far conversations come: what is learned, of whom, and what is let go."""

from __future__ import annotations

from fractions import Fraction

from proxy.core.horizon import Expectation, Unit
from proxy.outlook import MOST_GROUPS, MOST_LIVES, OVER, Life, Outlook, Whose, task_of


def whose(name: str, task: str = "", scope: str = "key") -> Whose:
    return Whose(scope.encode(), task, b"root " + name.encode(), name.encode())


def life(requests: int, at: float = 0.0, prompt: int = 1_000, link: bytes = b"l") -> Life:
    return Life(link, requests, prompt, 50, 30, 200, at)


def learned(outlook: Outlook, it: Whose, stands: int, now: float = OVER + 1) -> Expectation | None:
    return outlook.expected(it, Unit.REQUESTS, stands, now)


def test_conversations_of_the_key_and_the_task_that_came_further_say_how_much_is_to_come() -> None:
    outlook = Outlook()
    for name, requests in (("a", 4), ("b", 10), ("c", 20)):
        outlook.note(whose(name), life(requests))
    outlook.note(whose("d", task="another"), life(90))
    outlook.note(whose("e", scope="other key"), life(90))

    assert Expectation(Fraction(10), 2) == learned(outlook, whose("new"), 5)
    assert Expectation(Fraction(85), 1) == learned(outlook, whose("new", task="another"), 5)
    assert learned(outlook, whose("new"), 20) is None
    assert learned(outlook, whose("new", task="third"), 1) is None


def test_positions_are_all_that_there_was_once() -> None:
    outlook = Outlook()
    outlook.note(whose("a"), life(4, prompt=1_000))

    assert Expectation(Fraction(1_000 + 200 + 50 - 400), 1) == outlook.expected(
        whose("new"), Unit.POSITIONS, 400, OVER + 1
    )


def test_what_is_under_way_says_nothing_of_its_length_nor_does_the_conversation_itself() -> None:
    outlook = Outlook()
    outlook.note(whose("a"), life(4, at=0.0))
    outlook.note(whose("b"), life(8, at=50.0))

    assert learned(outlook, whose("new"), 1, now=OVER) is None
    assert Expectation(Fraction(3), 1) == learned(outlook, whose("new"), 1, now=OVER + 50)
    assert learned(outlook, whose("a"), 1, now=OVER + 50) is None


def test_a_conversation_that_goes_on_is_known_by_its_latest_request() -> None:
    outlook = Outlook()
    first = Whose(b"key", "", b"root a", b"root a")
    outlook.note(first, life(1, link=b"one"))
    assert life(1, link=b"one") == outlook.last(whose("a"), b"one")

    outlook.note(whose("a"), life(2, link=b"two"))

    assert outlook.last(whose("a"), b"one") is None
    assert life(2, link=b"two") == outlook.last(whose("a"), b"two")
    assert outlook.last(first, b"one") is None
    assert Expectation(Fraction(1), 1) == learned(outlook, whose("new"), 1)


def test_what_is_held_is_bounded_and_the_longest_unused_goes_first() -> None:
    outlook = Outlook()
    for at in range(MOST_LIVES + 1):
        outlook.note(whose(f"{at}"), life(2, link=b"%d" % at))
    assert outlook.last(whose("0"), b"0") is None
    assert outlook.last(whose("1"), b"1") is not None

    for at in range(MOST_GROUPS):
        outlook.note(whose("a", task=f"{at}"), life(2))
    assert outlook.last(whose("1"), b"1") is None
    assert outlook.last(whose("a", task="0"), b"l") is not None


def test_a_label_is_short_and_ascii() -> None:
    assert "" == task_of({})
    assert "a" * 100 == task_of({b"x-lethe-task": b"a" * 101})
    assert "\ufffd" == task_of({b"x-lethe-task": b"\xff"})
