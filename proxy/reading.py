"""Reads declared settings: a field's type says how its value is read, so each stands once.

A class of settings is a frozen dataclass. Its fields are values (`Kind`), tables (another such
class), rows (a tuple of one, `[[key]]` in TOML for a field `keys`) and secrets, which are no keys
of the file: it names the environment variables that hold them. What is bad is complained of, all of
it, and stands as its default meanwhile. No complaint repeats what may be a secret.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    assert_never,
    get_args,
    get_origin,
    get_type_hints,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """How one value is read.

    `accept` takes what TOML gives and returns what is kept; its ValueError says what came and what
    was wanted. `decode` makes of a text (environment, command line) what TOML would have given.
    """

    accept: Callable[[Any], Any]
    decode: Callable[[str], Any] = str


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that the environment variable holds which the field `named_by` names."""

    named_by: str
    kept: Callable[[str], str] = str.strip


@dataclass(frozen=True, slots=True)
class Table:
    of: type


@dataclass(frozen=True, slots=True)
class Rows:
    of: type


Shape = Kind | Secret | Table | Rows


# Kinds


def wanted(came: Any, what: str) -> ValueError:
    return ValueError(f"got {shown(came)}; wanted {what}")


def shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def known_are(came: Any, known: Iterable[str]) -> str:
    """What was perhaps meant, and all that is known."""
    known = tuple(known)
    close = get_close_matches(str(came), known, 1)
    return (
        "".join(f"did you mean {name}? " for name in close) + f"known: {', '.join(known) or 'none'}"
    )


def whole(least: int, most: int | None = None) -> Kind:
    what = f"a whole number from {least}" + ("" if most is None else f" to {most}")

    def accept(value: Any) -> int:
        if type(value) is int and least <= value and (most is None or value <= most):
            return value
        raise wanted(value, what)

    return Kind(accept, _number(int))


def _seconds(value: Any) -> float:
    number = type(value) is int or type(value) is float
    if number and value > 0 and math.isfinite(value):
        return float(value)
    raise wanted(value, "a number of seconds above 0")


def _number(kind: type[int] | type[float]) -> Callable[[str], Any]:
    def decode(text: str) -> int | float | str:
        try:
            return kind(text.strip())
        except ValueError:
            return text

    return decode


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise wanted(value, "true or false")


def _flag_in(text: str) -> bool | str:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.strip().lower(), text)


SECONDS = Kind(_seconds, _number(float))
FLAG = Kind(_flag, _flag_in)


def text(what: str, pattern: str) -> Kind:
    """A text that the pattern matches as a whole."""

    def accept(value: Any) -> str:
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        raise wanted(value, what)

    return Kind(accept)


def choice(names: tuple[str, ...]) -> Kind:
    def accept(value: Any) -> str:
        if isinstance(value, str) and value in names:
            return value
        raise ValueError(f"got {shown(value)}; {known_are(value, names)}")

    return Kind(accept)


def list_of(item: Kind) -> Kind:
    """In TOML a list; in a text the items with commas between."""

    def accept(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise wanted(value, "a list")
        return tuple(item.accept(one) for one in value)

    def decode(text: str) -> list[Any]:
        return [item.decode(part.strip()) for part in text.split(",") if part.strip()]

    return Kind(accept, decode)


def maybe(kind: Kind) -> Kind:
    """An empty text stands for none: TOML has no other word for it."""
    return Kind(lambda value: None if value == "" else kind.accept(value), kind.decode)


# Shapes


def shapes(cls: type) -> dict[str, Shape]:
    """How each field of a class of settings is read, by the name of the field."""
    return {name: _shape(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}


def _shape(hint: Any) -> Shape:
    origin, items = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and is_dataclass(hint):
        return Table(hint)
    if origin is Annotated:
        found: Shape = items[1]
        return found
    if origin is Literal:
        return choice(items)
    inner = _shape(items[0])
    if isinstance(inner, Table):
        return Rows(inner.of)
    assert isinstance(inner, Kind), hint
    return list_of(inner) if origin is tuple else maybe(inner)


def key_of(name: str, shape: Shape) -> str:
    """The key in the file: each `[[upstream]]` is one of the field `upstreams`."""
    return name.removesuffix("s") if isinstance(shape, Rows) else name


def keys_of(cls: type) -> list[str]:
    """The keys that a table of this class may have in the file."""
    return [key_of(n, shape) for n, shape in shapes(cls).items() if not isinstance(shape, Secret)]


def default_of(cls: type, name: str) -> Any:
    """MISSING where a field has to be given."""
    return next(each.default for each in fields(cls) if each.name == name)


# Reading


@dataclass(frozen=True, slots=True)
class Given:
    """A value from outside the file, and the name under which it came."""

    value: Any
    where: str


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a value stands: its path (`ledger.ttl`), and its place in the file (`[ledger] ttl`)."""

    path: str = ""
    place: str = ""

    def under(self, key: str, *, table: bool = False) -> Spot:
        top = f"[{key}]" if table else key
        place = f"{self.place} {key}" if self.place else top
        return Spot(f"{self.path}.{key}" if self.path else key, place)

    def row(self, number: int) -> Spot:
        return Spot(self.path, f"[[{self.path}]] {number}")


class Reading:
    """One reading of all sources.

    `given` has what came from outside the file, by path. Afterwards `complaints` lists what is
    wrong, `bad` its paths, and `variables` the variables in which secrets were looked for.
    """

    def __init__(
        self, given: Mapping[str, Given], environ: Mapping[str, str], file: Path | None
    ) -> None:
        self._given, self._environ, self._file = given, environ, file
        self.complaints: list[str] = []
        self.bad: set[str] = set()
        self.variables: set[str] = set()

    def complain(self, spot: Spot, reason: str, where: str | None = None) -> None:
        """`where` is the place in the file unless it is said."""
        in_file = f"{self._file}: {spot.place}" if self._file else spot.place
        self.bad.add(spot.path)
        self.complaints.append(f"{where or in_file}: {reason}")

    def table(self, cls: type[T], raw: Any, spot: Spot) -> T:
        """One table of the file, with what was given from outside, as its class."""
        if not isinstance(raw, Mapping):
            self.complain(spot, str(wanted(raw, "a table")))
            raw = {}
        self._refuse_unknown(keys_of(cls), raw, spot)
        found: dict[str, Any] = {}
        for name, shape in shapes(cls).items():
            default = default_of(cls, name)
            if isinstance(shape, Secret):
                value = self._secret(shape, cls, found, spot)
            else:
                value = self._entry(shape, raw, spot, key_of(name, shape), default is MISSING)
            found[name] = default if value is MISSING else value
        return cls(**found)

    def _refuse_unknown(self, known: list[str], raw: Mapping[str, Any], spot: Spot) -> None:
        for key in raw:
            if f"{key}_env" in known and key not in known:
                reason = f"a secret does not stand here: name its variable with {key}_env"
                self.complain(spot.under(key), reason)
            elif key not in known:
                self.complain(spot.under(key), f"is unknown; {known_are(key, known)}")

    def _entry(
        self,
        shape: Kind | Table | Rows,
        raw: Mapping[str, Any],
        spot: Spot,
        key: str,
        required: bool,
    ) -> Any:
        """What stands under one key, MISSING where its default holds."""
        match shape:
            case Table():
                return self.table(shape.of, raw.get(key, {}), spot.under(key, table=True))
            case Rows():
                return self._rows(shape.of, raw.get(key, []), spot.under(key))
            case Kind():
                value = self._value(
                    shape, raw.get(key, "" if required else MISSING), spot.under(key)
                )
                return "" if required and value is MISSING else value
            case _:
                assert_never(shape)

    def _rows(self, cls: type[T], raw: Any, spot: Spot) -> tuple[T, ...]:
        if not isinstance(raw, list):
            self.complain(spot, str(wanted(raw, f"tables, each below its own [[{spot.path}]]")))
            return ()
        return tuple(self.table(cls, row, spot.row(number)) for number, row in enumerate(raw, 1))

    def _value(self, kind: Kind, raw: Any, spot: Spot) -> Any:
        given = self._given.get(spot.path)
        try:
            if given is not None:
                return kind.accept(decoded(kind, given.value))
            return raw if raw is MISSING else kind.accept(raw)
        except ValueError as error:
            self.complain(spot, str(error), given.where if given else None)
            return MISSING

    def _secret(self, secret: Secret, cls: type, found: Mapping[str, Any], spot: Spot) -> Any:
        """What the variable holds. One that was named on purpose has to be there."""
        variable = found[secret.named_by]
        if variable is None:
            return MISSING
        self.variables.add(variable)
        value = self._environ.get(variable, "")
        if value.strip():
            return secret.kept(value)
        if variable != default_of(cls, secret.named_by):
            reason = f"the environment has no {variable}, or an empty one"
            self.complain(spot.under(secret.named_by), reason)
        return MISSING


def decoded(kind: Kind, value: Any) -> Any:
    """What TOML would have given for a value from outside."""
    return kind.decode(value) if isinstance(value, str) else value
