"""What the requests of one conversation come to: only what is known, and of how many steps."""

from __future__ import annotations

from typing import Any

from proxy.page.sums import sums
from tests.page.talk import account

PAID = {"cost": 0.5, "mechanical_saving": 0.125, "estimated": False, "rebuilt_estimated": 0.0}


def summed(*accounts: dict[str, Any], turns: int | None = None) -> Any:
    return sums(accounts, len(accounts) if turns is None else turns)


def test_tokens_are_added_up_over_the_steps_that_tell_them():
    silent = account(3, tokens={"input": 300, "output": 10})

    found = summed(account(1), account(2), silent)

    assert {"sum": 600, "steps": 3} == found["tokens"]["input"]
    assert {"sum": 220, "steps": 2} == found["tokens"]["cache_read"]
    assert {"sum": 0, "steps": 0} == found["tokens"]["reasoning"]
    assert {"sum": 60, "steps": 3} == found["tokens"]["dropped_estimated"]


def test_a_request_that_was_not_answered_to_its_end_is_no_step_and_is_paid_all_the_same():
    cut = account(2, ending="client_gone", dollars=PAID)

    found = summed(account(1, dollars=PAID), cut)

    assert (2, 1) == (found["requests"], found["steps"])
    assert {"sum": 10, "steps": 1} == found["tokens"]["output"]
    assert (1.0, 1.25, 2, 1) == tuple(
        found["dollars"][name] for name in ("cost", "keep", "priced", "steps")
    )


def test_what_has_no_price_is_counted_and_is_not_free():
    found = summed(account(1, dollars=PAID), account(2, unpriced="model"))["dollars"]

    assert (0.5, 0.125, 1, 1) == tuple(
        found[name] for name in ("cost", "mechanical_saving", "priced", "unpriced")
    )


def test_one_estimate_makes_the_saving_an_estimate():
    paid = summed(account(1, dollars=PAID), account(2, dollars=PAID | {"estimated": True}))

    assert paid["dollars"]["estimated"]


def test_breaks_are_told_by_whose_doing_they_were():
    def broken(by: str) -> dict[str, Any]:
        return account(prefix={"cause": "message_edited", "by": by, "broken": True})

    found = summed(account(), broken("client"), broken("proxy"), broken("client"))

    assert {"client": 2, "proxy": 1} == found["breaks"]


def test_policies_and_models_are_told_by_their_requests_and_the_last_label_holds():
    found = summed(account(1, task="old"), account(2, policy="keep", task="new"), account(3))

    assert ({"drop": 2, "keep": 1}, {"m": 3}) == (found["policies"], found["models"])
    assert "new" == found["task"]


def test_turns_whose_account_is_gone_are_told():
    assert 2_000 == summed(account(), turns=2_001)["untold"]


def test_nothing_comes_to_nothing():
    found = summed()

    assert (0, 0, None, {}) == tuple(found[it] for it in ("requests", "steps", "task", "breaks"))
    assert 0.0 == found["dollars"]["cost"]


def test_accounts_of_another_version_hurt_nobody():
    odd: list[dict[str, Any]] = [
        {}, {"tokens": None, "dollars": 3, "prefix": [], "steps": None},
        {"dollars": {"cost": None}, "policy": None, "task": None},
    ]  # fmt: skip

    found = summed(*odd)

    assert (3, 3, 3) == (found["requests"], found["steps"], found["dollars"]["unpriced"])
