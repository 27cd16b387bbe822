"""The contract that follows from the findings, and its TOML as `config/providers.toml` takes it.

What was found out stands over what was known already of this upstream and model; what is neither
stays at its default. The whole is one row that needs no other, so a model's template is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.contract import (
    UNKNOWN,
    Affinity,
    CacheRule,
    Contract,
    Drops,
    Pattern,
    Reuse,
    Table,
    choose,
    places,
)
from proxy.core.contract import Asked as Sought
from proxy.doctor.conclusion import Conclusion
from proxy.doctor.findings import Findings

_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class Examined:
    """What was examined, on which day (ISO)."""

    upstream: str
    model: str
    date: str

    @property
    def host(self) -> str:
        return next(iter(places(self.upstream)), "")


def known_before(table: Table, examined: Examined, owned_by: str) -> Contract:
    """What the table says of this upstream and model, without what it says of all upstreams."""
    found = choose(table, Sought(examined.upstream, examined.model, owned_by)).contract
    return replace(found, errors=found.errors[: len(found.errors) - len(table.errors)])


def contract_of(found: Findings, examined: Examined, known: Contract) -> Contract:
    """What was found out, over what was known."""
    told = {key: it.value for key, it in _by_key(found).items() if it.value is not None}
    return replace(
        known,
        name=_name(examined.host if known.name == UNKNOWN.name else known.name, examined.model),
        hosts=(examined.host,),
        models=(_literal(examined.model),),
        owned_by=(),
        templated=False,  # what its template does was found out, or is laid over already
        cache=_cache_of(found, known),
        usage_hint="" if found.reports_cache.value else known.usage_hint,
        errors=_joined(found.errors, known.errors),
        source=_source(examined, known),
        date=examined.date,
        **told,
    )


def _by_key(found: Findings) -> Mapping[str, Conclusion[Any]]:
    """The conclusions that are a key of the contract."""
    whole, streamed = found.writes, found.writes_streamed
    drops = {} if found.drops.value is Drops.ANY else {"drops": found.drops}  # ANY: of one step
    return drops | {
        "reads": found.reads,
        "writes": whole if whole.value else streamed,
        "requires": found.requires,
        "encoding": found.encoding,
        "user_turn": found.user_turn,
        "reports_cache": found.reports_cache,
        "stream_usage": found.stream_usage,
    }


def _cache_of(found: Findings, known: Contract) -> CacheRule | None:
    """The rule that was found. How long a cache stays is not asked: that stands as it was known."""
    if found.rule is None or found.rule.reuse is Reuse.NONE:
        return found.rule or known.cache
    return replace(found.rule, ttl=known.cache.ttl if known.cache else None)


def _joined(first: tuple[Pattern, ...], second: tuple[Pattern, ...]) -> tuple[Pattern, ...]:
    return tuple({it.error: it for it in (*second, *first)}.values())


def _name(head: str, model: str) -> str:
    """A word of the letters that a name may have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{head}-{model}")[:_LONGEST_NAME].strip("-")


def _literal(model: str) -> str:
    """The model as a pattern that matches it alone."""
    return re.sub(r"([*?\[])", r"[\1]", model)


def _source(examined: Examined, known: Contract) -> str:
    own = f"lethe doctor, {examined.host}"
    return own if known.name == UNKNOWN.name else f"{own}; else as {known.name}"


def unknowns(found: Findings) -> list[str]:
    """The keys that were asked for and not found out."""
    rule = [] if found.rule is not None else ["cache"]
    return [key for key, it in _by_key(found).items() if it.value is None] + rule


# TOML


def toml_of(contract: Contract, not_found: list[str]) -> str:
    """One `[[contract]]` table. Keys at their defaults are not written."""
    comment = f"# not found out: {', '.join(not_found)}" if not_found else ""
    return "\n".join(filter(None, ("[[contract]]", *_lines(contract), comment))) + "\n"


def _lines(contract: Contract) -> Iterator[str]:
    default = Contract("")
    for key in contract.__struct_fields__:
        value = getattr(contract, key)
        if value != getattr(default, key):
            yield f"{key} = {_value(value)}"


def _value(value: Any) -> str:
    match value:
        case Enum():
            return _value(value.value)
        case str():
            return _text(value)
        case CacheRule(reuse=Reuse.NONE):
            return _inline({"reuse": value.reuse})
        case CacheRule() | Affinity() | Pattern():
            members = {key: getattr(value, key) for key in value.__struct_fields__}
            return _inline({k: v for k, v in members.items() if v not in (None, "")})
        case msgspec.Raw():
            return _value(json.loads(bytes(value)))
        case dict():
            return _inline(value)
        case tuple() | list():
            return _row(value)
        case _:
            return json.dumps(value)


def _inline(members: Mapping[str, Any]) -> str:
    told = [f"{_key(key)} = {_value(value)}" for key, value in members.items()]
    return f"{{ {', '.join(told)} }}" if told else "{}"


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _basic(key)


def _row(values: tuple[Any, ...] | list[Any]) -> str:
    if any(isinstance(value, Pattern) for value in values):
        return "[\n" + "".join(f"  {_value(value)},\n" for value in values) + "]"
    return f"[{', '.join(map(_value, values))}]"


def _text(text: str) -> str:
    """A literal string where there is a backslash and nothing forbids it, else a basic one."""
    if "\\" in text and text.isprintable() and "'" not in text:
        return f"'{text}'"
    return _basic(text)


def _basic(text: str) -> str:
    """TOML's basic strings know JSON's escapes. DEL has to be one of them; JSON may write it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
