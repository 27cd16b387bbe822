"""The page's cookie: what it opens, and what does not open anything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.page import session
from proxy.page.session import Pass


def test_a_cookie_opens_what_it_was_issued_for_until_it_ends() -> None:
    whole = session.issued("token", None, 100)
    own = session.issued("token", b"s" * 16, 100)

    assert Pass(None) == session.read("token", whole, 99)
    assert Pass(b"s" * 16) == session.read("token", own, 99)
    assert session.read("token", whole, 100) is None


def test_another_token_ends_all_cookies() -> None:
    assert session.read("other", session.issued("token", None, 100), 99) is None


def test_a_cookie_cannot_be_widened() -> None:
    own = session.issued("token", b"s" * 16, 100)
    until, scope, signature = own.split(".")

    assert session.read("token", f"{until}.all.{signature}", 99) is None
    assert session.read("token", f"999.{scope}.{signature}", 99) is None


@given(st.text())
def test_what_is_no_cookie_opens_nothing(cookie: str) -> None:
    assert session.read("token", cookie, 0) is None
