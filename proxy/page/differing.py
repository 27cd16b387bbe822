"""Where two texts part, with a little of what stands around it."""

from __future__ import annotations

from typing import Any

from proxy.core.explain import common

_BEFORE, _WITHIN, _AFTER = 80, 320, 60


def differing(was: str | None, now: str | None) -> dict[str, Any]:
    """The first place where the texts part. One of them may be unknown: then nothing is compared.

    `offset` counts characters, `shared` stands before it in both, `rest` after the difference in
    both; `was` and `now` are what differs, cut where that is long.
    """
    if was is None or now is None:
        return {"offset": None, "shared": "", "was": _cut(was), "now": _cut(now), "rest": ""}
    at = common(was, now)
    tail = common(was[at:][::-1], now[at:][::-1])
    ends = len(was) - tail, len(now) - tail
    whole = max(ends) - at <= _WITHIN
    return {
        "offset": at,
        "shared": ("…" if at > _BEFORE else "") + was[max(0, at - _BEFORE) : at],
        "was": _cut(was[at : ends[0]]),
        "now": _cut(now[at : ends[1]]),
        "rest": _rest(was[ends[0] :]) if whole else "",
    }


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _WITHIN else text[:_WITHIN] + "…"


def _rest(text: str) -> str:
    return text if len(text) <= _AFTER else text[:_AFTER] + "…"
