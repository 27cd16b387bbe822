"""The names under which the wire of an upstream and model is pinned."""

from __future__ import annotations

import pytest

from proxy import writing
from proxy.settings import UpstreamSettings

UP, OTHER = UpstreamSettings(name="up"), UpstreamSettings(name="other")


def test_each_upstream_and_model_has_names_of_its_own() -> None:
    pairs = [(UP, "m"), (OTHER, "m"), (UP, "n"), (UP, ""), (UP, "\ud83d"), (UP, "p" + "m")]

    names = [name for up, model in pairs for name in writing.names_of(up, model)]

    assert 2 * len(pairs) == len(set(names))


def test_names_are_worked_out_once_and_no_more_are_held_than_a_bound() -> None:
    first = writing.names_of(UP, "m")

    assert first is writing.names_of(UpstreamSettings(name="up"), "m")
    for number in range(writing.MOST_NAMES):
        writing.names_of(UP, str(number))
    assert first == writing.names_of(UP, "m")
    assert first is not writing.names_of(UP, "m")


@pytest.mark.parametrize("at", [0, 1])
def test_names_are_the_ones_that_stores_hold(at: int) -> None:
    assert ("wire:", "mended:")[at] + "967de60ac8ac6c32" == writing.names_of(UP, "m")[at]
