"""Records kept as what changed in them: put together again they are what was sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.sent import Element
from proxy.ledger.trail import REBASE, Trail, difference
from tests.ledger.words import element, elements, links, sent

Elements = tuple[Element, ...]
lists = st.lists(st.integers(0, 5), max_size=12).map(lambda names: elements(*names))


@given(lists, lists)
def test_difference_applied_to_the_one_gives_the_other(old: Elements, new: Elements) -> None:
    assert new == difference(old, new).applied(old)


@given(lists, lists)
def test_what_was_appended_is_all_that_is_fresh(old: Elements, more: Elements) -> None:
    assert more == difference(old, old + more).fresh


@given(lists, st.integers(0, 11))
def test_one_edited_in_place_is_all_that_is_fresh(old: Elements, at: int) -> None:
    new = (*old[:at], element("edited"), *old[at + 1 :])

    assert (element("edited"),) == difference(old, new).fresh


@given(lists, lists, lists)
def test_patch_is_not_applied_to_what_is_too_short_for_it(
    old: Elements, new: Elements, other: Elements
) -> None:
    patch = difference(old, new)
    applied = patch.applied(other)

    assert (applied is None) == (patch.shared > len(other))


@given(st.lists(lists, min_size=1, max_size=8))
def test_every_record_of_a_trail_is_what_was_added(history: list[Elements]) -> None:
    trail, chain = Trail(), links(len(history))
    for link, these in zip(chain, history, strict=True):
        trail.add(sent(link, these))

    assert [sent(link, these) for link, these in zip(chain, history, strict=True)] == [
        trail.at(link) for link in chain
    ]


def test_trail_longer_than_its_longest_row_of_parents_is_whole() -> None:
    trail, chain = Trail(), links(2 * REBASE + 5)
    for number, link in enumerate(chain):
        trail.add(sent(link, elements(*range(number))))

    assert all(
        sent(link, elements(*range(number))) == trail.at(link) for number, link in enumerate(chain)
    )


def test_equal_elements_of_a_trail_are_one_object() -> None:
    trail, chain = Trail(), links(3)
    first, _ = trail.add(sent(chain[0], elements(1, 2)))
    second, fresh = trail.add(sent(chain[2], elements(1, 2, 3)))

    assert 1 == fresh
    assert all(a is b for a, b in zip(first.elements, second.elements, strict=False))


def test_deepest_record_of_a_chain_is_told_with_its_place() -> None:
    trail, chain = Trail(), links(7)
    trail.add(sent(chain[2], elements(1)))
    trail.add(sent(chain[4], elements(1, 2)))

    assert (4, sent(chain[4], elements(1, 2))) == trail.deepest(chain)
    assert (2, sent(chain[2], elements(1))) == trail.deepest(chain[:4])
    assert trail.deepest(chain[:2]) is None
    assert trail.at(chain[0]) is None
