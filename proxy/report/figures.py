"""Changes, shares and their intervals, written for people."""

from __future__ import annotations

from proxy.page import plain
from proxy.replay.statistics import Interval


def percent(share: float) -> str:
    """A share without its sign: `12 %`, `3.4 %`."""
    return f"{number(abs(share))} %"


def number(share: float) -> str:
    points = 100 * share
    return f"{points:.0f}" if abs(points) >= 9.95 else f"{points:.1f}".removesuffix(".0")


def signed(share: float) -> str:
    told = number(abs(share))
    return told if told == "0" else f"{'-' if share < 0 else '+'}{told}"


def points(share: float) -> str:
    """`+12 points`, `-1 point`."""
    told = signed(share)
    return f"{told} {plain.noun(float(told), 'point')}"


def much(found: Interval) -> str:
    """`12 % less (95 %: 8 to 15)`, `3 % more (95 %: 4 % less to 10 % more)`."""
    told = _side(found.value)
    if found.low is None or found.high is None:
        return told
    if found.certain:
        return f"{told} {_range(found.low, found.high)}"
    return f"{told} (95 %: {_side(found.low)} to {_side(found.high)})"


def _side(share: float) -> str:
    if number(abs(share)) == "0":
        return "as much"
    return f"{percent(share)} {'more' if share > 0 else 'less'}"


def size(found: Interval) -> str:
    """`40 % (95 %: 25 to 55)`, of a change whose direction is told beside it; with signs where the
    interval holds 0.
    """
    if found.low is None or found.high is None:
        return percent(found.value)
    if found.certain:
        return f"{percent(found.value)} {_range(found.low, found.high)}"
    return percent(found.value) + sure(found)


def sure(found: Interval) -> str:
    """` (95 %: -2 to +15)`; nothing where that is not known."""
    if found.low is None or found.high is None:
        return ""
    return f" (95 %: {signed(found.low)} to {signed(found.high)})"


def _range(low: float, high: float) -> str:
    near, far = sorted(map(abs, (low, high)))
    return f"(95 %: {number(near)} to {number(far)})"


def change(found: Interval | None, certain: bool) -> str:
    """A change in a table's cell: `-12 % (-15 to -8)`; `?` where its direction is not sure."""
    if found is None:
        return plain.UNKNOWN
    mark = "" if certain else " ?"
    if found.low is None or found.high is None:
        return f"{signed(found.value)} %{mark}"
    return f"{signed(found.value)} % ({signed(found.low)} to {signed(found.high)}){mark}"


def dollars(amount: float | None, estimated: bool = False) -> str:
    """A bill or a saving, a loss with its sign: `$1.23`, `-$0.20`, `~$0.0012`."""
    if amount is None:
        return plain.UNKNOWN
    told = plain.dollars(abs(amount), estimated)
    if told[-2] == ".":
        told += "0"  # ten cents are $0.10
    return told.replace("$", "-$", 1) if amount < 0 else told
