"""A conclusion: the answer to one question, and what it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Conclusion(Generic[T]):
    """`value` is None where it is not known; then `how` says why. `found` is for people."""

    what: str
    value: T | None
    found: str
    how: str


def unknown(what: str, how: str) -> Conclusion[Any]:
    return Conclusion(what, None, "unknown", how)
