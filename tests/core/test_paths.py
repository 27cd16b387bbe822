"""Where a client's path leads: the right place at every provider, and never out of it."""

from __future__ import annotations

from posixpath import normpath
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.paths import url_for

CHAT = b"/v1/chat/completions"


@pytest.mark.parametrize(
    ("base", "path", "wanted"),
    [
        ("https://api.openai.com/v1", CHAT, "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com", CHAT, "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/", CHAT, "https://api.openai.com/v1/chat/completions"),
        ("https://api.openai.com/v1/", b"/v1", "https://api.openai.com/v1"),
        (
            "http://127.0.0.1:8000",
            b"/chat/completions",
            "http://127.0.0.1:8000/v1/chat/completions",
        ),
        ("https://api.z.ai/api/paas/v4", CHAT, "https://api.z.ai/api/paas/v4/chat/completions"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai",
            CHAT,
            "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions",
        ),
        ("https://api.groq.com/openai/v1", CHAT, "https://api.groq.com/openai/v1/chat/completions"),
        (
            "https://r.openai.azure.com/openai/deployments/gpt",
            CHAT,
            "https://r.openai.azure.com/openai/deployments/gpt/chat/completions",
        ),
        (
            "https://r.openai.azure.com/openai",
            b"/openai/deployments/gpt/chat/completions",
            "https://r.openai.azure.com/openai/deployments/gpt/chat/completions",
        ),
        ("https://h/v1", b"/v1beta/models", "https://h/v1/v1beta/models"),
        ("https://h/v1", b"/v1/v1/models", "https://h/v1/v1/models"),
    ],
)
def test_each_provider_is_reached_at_its_own_path(base, path, wanted):
    assert wanted == url_for(base, path, b"")


def test_query_and_percent_encoding_stay_as_they_came():
    url = url_for("https://h/v1", b"/v1/models/a%2Fb%20c%7e", b"api-version=2024-10-21&q=%41+b|c")

    assert "https://h/v1/models/a%2Fb%20c%7e?api-version=2024-10-21&q=%41+b|c" == url


def test_bytes_that_no_url_may_hold_are_percent_encoded():
    assert "https://h/v1/%C3%A9?q=%FF" == url_for("https://h/v1", "/v1/é".encode(), b"q=\xff")
    assert "https://h/v1/%C3%A9" == url_for("https://h/v1", "/v1/é", b"")


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (b"/v1/../admin", "https://h/base/admin"),
        (b"/v1/%2E%2e/%2e./admin", "https://h/base/admin"),
        (b"/../../..", "https://h/base/"),
        (b"/v1/files/./7/..", "https://h/base/files/"),
        (b"//evil.example/x", "https://h/base//evil.example/x"),
        (b"@evil.example/x", "https://h/base/@evil.example/x"),
        (b"*", "https://h/base/*"),
        (b"", "https://h/base/"),
        (b"/v1/..hidden/...", "https://h/base/..hidden/..."),
    ],
)
def test_no_path_leaves_the_base(path, wanted):
    assert wanted == url_for("https://h/base", path, b"")


SEGMENTS = st.sampled_from(
    [b"..", b".", b"%2e%2E", b".%2e", b"v1", b"base", b"", b"a", b"@b:c", b"x"]
)


@given(st.lists(SEGMENTS).map(b"/".join), st.sampled_from(["", "/base", "/base/v4"]))
def test_host_and_base_path_hold_for_every_path(path, base):
    url = urlsplit(url_for(f"https://h:1{base}", path, b""))
    resolved = normpath(unquote(url.path))

    assert "h:1" == url.netloc
    assert (resolved + "/").startswith((base or "/v1") + "/")


def test_a_base_without_scheme_and_host_is_refused():
    with pytest.raises(ValueError, match="no scheme and host"):
        url_for("api.example/v1", CHAT, b"")
