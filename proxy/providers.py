"""Reads `providers.toml`: the built-in table of contracts, and an own one laid over it.

`[[contract]]` rows are hosts and engines, `[[template]]` rows model families, `[[error]]` rows the
words of refusals. A row of the own file that has the name of a built-in one replaces its keys, the
others come before all built-in ones. `like = "NAME"` takes over what another row says, but for its
name and its patterns. All complaints come at once, with the row that they are about.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from proxy.core import policy
from proxy.core.contract import (
    Affinity,
    CacheRule,
    Contract,
    Drops,
    Encoding,
    Pattern,
    Remedy,
    Requires,
    Reuse,
    StreamUsage,
    Table,
    Template,
    UserTurn,
)
from proxy.errors import SettingsError
from proxy.reading import (
    FLAG,
    SECONDS,
    Kind,
    choice,
    known_are,
    list_of,
    shown,
    text,
    wanted,
    whole,
)

CARRIERS = (
    "reasoning_content", "reasoning", "reasoning_text", "reasoning_details", "content_parts",
    "think",
)  # fmt: skip
_PLACES = (Path(__file__).parent / "data", Path(__file__).parent.parent / "config")
_TABLES = ("contract", "template", "error")
T = TypeVar("T")
E = TypeVar("E", bound=Enum)


# Kinds of values


def _enum(kind: type[E]) -> Kind:
    names = choice(tuple(str(member.value) for member in kind))
    return Kind(lambda value: kind(names.accept(value)))


def _table_of(cls: Callable[..., T], kinds: Mapping[str, Kind], *needed: str) -> Kind:
    """An inline table; what is wrong with it is told at once."""

    def accept(value: Any) -> T:
        if not isinstance(value, Mapping):
            raise wanted(value, f"a table of {', '.join(kinds)}")
        found, complaints = _accepted(kinds, value)
        complaints += [f"{key} is wanted" for key in needed if key not in value]
        if complaints:
            raise ValueError("; ".join(complaints))
        return cls(**found)

    return Kind(accept)


# What says how a request is framed, who sends it and what is wanted is nobody's to override.
_OWN_MEMBERS = frozenset(
    {"messages", "model", "stream", "stream_options", "n", "tools", "tool_choice", "max_tokens",
     "max_completion_tokens", "response_format"}
)  # fmt: skip


def _preserve(value: Any) -> msgspec.Raw:
    """JSON by top-level member."""
    if not isinstance(value, Mapping):
        raise wanted(value, "a table of what is added to a request")
    if owned := sorted(_OWN_MEMBERS & value.keys()):
        raise wanted(", ".join(owned), "members that only this sets")
    try:
        # Not orjson, which writes a date as a text.
        return msgspec.Raw(json.dumps(value, separators=(",", ":"), allow_nan=False).encode())
    except (TypeError, ValueError):
        raise ValueError("wanted values that JSON has: no dates, no nan") from None


def _policy(value: Any) -> str:
    if not isinstance(value, str):
        raise wanted(value, f"one of {', '.join(policy.NAMES)}")
    return str(policy.parse(value))


def _regex(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise wanted(value, "a regular expression")
    try:
        re.compile(value, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"got {shown(value)}; wanted a regular expression: {error}") from None
    return value


_TEXT = text("a text", r"(?s).+")
_NAMES = list_of(text("a list of names", r"\S+"))
_NAME = text("a name of up to 64 letters, digits, . _ -", r"[A-Za-z0-9._-]{1,64}")
_DATE = text("a date as 2026-11 or 2026-11-30", r"\d{4}-\d{2}(-\d{2})?")
_ERROR = {"error": Kind(_regex), "remedy": _enum(Remedy)}
_PATTERN = _table_of(Pattern, _ERROR, "error", "remedy")
_RULE = {"reuse": _enum(Reuse), "block": whole(1), "minimum": whole(0), "ttl": SECONDS}
_OWN_HEADERS = (
    r"(?!content-|accept|transfer-encoding|connection|host$|expect|upgrade|te$|trailer|keep-alive"
    r"|proxy-|authorization|api-key|x-api-key|cookie)"
)


def _member(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\S+", value) or value in _OWN_MEMBERS:
        raise wanted(value, "the name of a member of the body that only this sets")
    return value


_MEMBER = Kind(_member)
_HEADER = text(
    "a header name in lower case, none that frames a request or says who sends it",
    _OWN_HEADERS + r"[a-z0-9!#$%&'*+.^_`|~-]+",
)
_OF_MODEL: Mapping[str, Kind] = {
    "models": _NAMES,
    "requires": _enum(Requires),
    "user_turn": _enum(UserTurn),
    "preserve": Kind(_preserve),
    "system_first": FLAG,
    "rendered": _NAMES,
    "default_policy": Kind(_policy),
    "warning": _TEXT,
    "source": _TEXT,
    "date": _DATE,
}
CONTRACT: Mapping[str, Kind] = {
    "name": _NAME,
    "hosts": _NAMES,
    "owned_by": _NAMES,
    "templated": FLAG,
    "reads": list_of(choice(CARRIERS)),
    "writes": choice(CARRIERS),
    "drops": _enum(Drops),
    "encoding": _enum(Encoding),
    "seals_may_go": FLAG,
    "cache": _table_of(CacheRule, _RULE, "reuse"),
    "reports_cache": FLAG,
    "usage_hint": _TEXT,
    "stream_usage": _enum(StreamUsage),
    "errors": list_of(_PATTERN),
    "affinity": _table_of(Affinity, {"body": _MEMBER, "header": _HEADER}),
    **_OF_MODEL,
}
TEMPLATE: Mapping[str, Kind] = {"name": _NAME, **_OF_MODEL}
ERROR: Mapping[str, Kind] = {**_ERROR, "source": _TEXT, "date": _DATE}
LIKE = "like"
_NOT_INHERITED = frozenset({"name", "hosts", "models", "owned_by", LIKE})


def _accepted(
    kinds: Mapping[str, Kind], row: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """What a row says, and what is wrong with it."""
    found: dict[str, Any] = {}
    complaints = []
    for key, value in row.items():
        if key not in kinds:
            complaints.append(f"{key}: is unknown; {known_are(key, kinds)}")
            continue
        try:
            found[key] = kinds[key].accept(value)
        except ValueError as error:
            complaints.append(f"{key}: {error}")
    return found, complaints


# Files


@dataclass(frozen=True, slots=True)
class _Row:
    """One table of a file as it stands there. `where` is how complaints call it."""

    where: str
    keys: dict[str, Any]

    @property
    def name(self) -> str:
        name = self.keys.get("name")
        return name if isinstance(name, str) else ""


@dataclass(slots=True)
class _Rows:
    """The rows of both files by the kind of table, and what is wrong with them."""

    of: dict[str, list[_Row]] = field(default_factory=lambda: {kind: [] for kind in _TABLES})
    complaints: list[str] = field(default_factory=list)

    def add(self, file: Path) -> None:
        raw = self._raw(file)
        for kind, rows in raw.items():
            if kind not in _TABLES:
                self.complaints.append(f"{file}: {kind}: is unknown; {known_are(kind, _TABLES)}")
            elif not isinstance(rows, list):
                told = wanted(rows, f"tables, each below its own [[{kind}]]")
                self.complaints.append(f"{file}: {kind}: {told}")
            else:
                self._add_rows(file, kind, rows)

    def _raw(self, file: Path) -> dict[str, Any]:
        try:
            return tomllib.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            self.complaints.append(f"{file}: cannot be read: {error.strerror}")
        except UnicodeDecodeError:
            self.complaints.append(f"{file}: cannot be read: it is not UTF-8")
        except (ValueError, RecursionError) as error:
            self.complaints.append(f"{file}: is not TOML: {error}")
        return {}

    def _add_rows(self, file: Path, kind: str, rows: list[Any]) -> None:
        added: list[_Row] = []
        for number, keys in enumerate(rows, 1):
            name = f" ({keys['name']})" if isinstance(keys, dict) and keys.get("name") else ""
            where = f"{file}: [[{kind}]] {number}{name}"
            if not isinstance(keys, dict):
                self.complaints.append(f"{where}: {wanted(keys, 'a table')}")
                continue
            row = _Row(where, keys)
            if kind != "error" and row.name in {other.name for other in added}:
                self.complaints.append(f"{where}: another row has this name; each wants its own")
            added.append(row)
        self.of[kind] = _laid_over(self.of[kind], added, kind)


def _laid_over(rows: list[_Row], own: list[_Row], kind: str) -> list[_Row]:
    """Own rows with a name that is there replace its keys; the others come first."""
    if kind == "error":
        return [*own, *rows]
    by_name = {row.name: row for row in own}
    known = {row.name for row in rows}
    replaced = [
        _Row(by_name[row.name].where, row.keys | by_name[row.name].keys)
        if row.name in by_name
        else row
        for row in rows
    ]
    return [*(row for row in own if row.name not in known), *replaced]


def _inherited(row: _Row, rows: Mapping[str, _Row], seen: tuple[str, ...] = ()) -> dict[str, Any]:
    """A row's keys with those of the row that it is like. Raises ValueError."""
    like = row.keys.get(LIKE)
    if like is None:
        return dict(row.keys)
    if not isinstance(like, str) or like not in rows:
        raise ValueError(f"like: no row is named {shown(like)}; {close_to(str(like), rows)}")
    if like in (*seen, row.name):
        raise ValueError(f"like: goes round in a circle: {' → '.join((*seen, row.name, like))}")
    taken = _inherited(rows[like], rows, (*seen, row.name))
    return {k: v for k, v in taken.items() if k not in _NOT_INHERITED} | {
        k: v for k, v in row.keys.items() if k != LIKE
    }


def close_to(name: str, names: Iterable[str]) -> str:
    """Which names were perhaps meant, and where all are told."""
    close = get_close_matches(name, tuple(names), 3, 0.5)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{meant}lethe contracts tells all of them"


def _built(
    rows: list[_Row], cls: Callable[..., T], kinds: Mapping[str, Kind], complaints: list[str]
) -> tuple[T, ...]:
    """The rows as values; what cannot be one is complained of and left out."""
    by_name, built = {row.name: row for row in rows}, []
    for row in rows:
        try:
            keys = _inherited(row, by_name)
        except ValueError as error:
            complaints.append(f"{row.where}: {error}")
            continue
        found, wrong = _accepted(kinds, keys)
        wrong += [] if "name" in keys else ["name is wanted"]
        if wrong:
            complaints += [f"{row.where}: {reason}" for reason in wrong]
        else:
            built.append(cls(**found))
    return tuple(built)


def _patterns(rows: list[_Row], complaints: list[str]) -> tuple[Pattern, ...]:
    built = []
    for row in rows:
        found, wrong = _accepted(ERROR, row.keys)
        wrong += [f"{key} is wanted" for key in _ERROR if key not in row.keys]
        if wrong:
            complaints += [f"{row.where}: {reason}" for reason in wrong]
        else:
            built.append(Pattern(found["error"], found["remedy"]))
    return tuple(built)


def read(own: Path | None = None) -> tuple[Table, list[str]]:
    """The table, with the own file laid over it, and every complaint."""
    rows = _Rows()
    for file in (built_in(), *((own,) if own else ())):
        rows.add(file)
    complaints = rows.complaints
    table = Table(
        _built(rows.of["contract"], Contract, CONTRACT, complaints),
        _built(rows.of["template"], Template, TEMPLATE, complaints),
        _patterns(rows.of["error"], complaints),
    )
    return table, complaints


def built_in() -> Path:
    """The file that comes with the program: beside it where it is installed, else `config/`."""
    files = [place / "providers.toml" for place in _PLACES]
    return next((file for file in files if file.is_file()), files[0])


def load(own: Path | None = None) -> Table:
    """The table. Raises SettingsError with every complaint at once."""
    table, complaints = read(own)
    if complaints:
        raise SettingsError("\n  ".join(("contracts cannot be used:", *complaints)))
    return table
