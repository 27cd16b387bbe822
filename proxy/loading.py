"""Reads the settings: command line, environment and a TOML file, once, into one frozen value.

Precedence: command line, environment, file, default. What `[table] key` is in the file is
`LETHE_TABLE_KEY` in the environment; what comes many times (`[[upstream]]`, `[[key]]`,
`[model_policies]`) stands in the file only, but for the URL of the default upstream. Secrets never
stand in the file: it names the environment variables that hold them. All complaints come at once.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from proxy import pricefile, providers
from proxy.conflicts import conflicts
from proxy.errors import SettingsError
from proxy.kinds import upstream_url
from proxy.reading import Given, Kind, Reading, Spot, Table, known_are, shapes
from proxy.settings import KeySettings, Settings, UpstreamSettings

_SHORT = {"ledger.redis": "redis"}
_FILE_ONLY = frozenset({"model_policies"})
# The command line's (where the file is), and those of the tests and of .ci/run.
_NOT_SETTINGS = frozenset({"LETHE_CONFIG", "LETHE_SHARED", "LETHE_VENV"})
# Kubernetes writes these into every container that runs beside a service called `lethe`.
_SERVICE_LINK = re.compile(r"LETHE_(SERVICE_(HOST|PORT)\w*|PORT_\d+_(TCP|UDP|SCTP)\w*)")


def overridable() -> dict[str, Kind]:
    """What environment and command line can set, by path (`port`, `ledger.ttl`)."""
    found: dict[str, Kind] = {"upstream": Kind(upstream_url)}
    for name, shape in shapes(Settings).items():
        if isinstance(shape, Kind) and name not in _FILE_ONLY:
            found[name] = shape
        elif isinstance(shape, Table):
            inner = shapes(shape.of).items()
            found |= {f"{name}.{key}": kind for key, kind in inner if isinstance(kind, Kind)}
    return found


def variable_of(path: str) -> str:
    """The environment variable of a path: `LETHE_LEDGER_TTL`."""
    return "LETHE_" + argument_of(path).upper()


def argument_of(path: str) -> str:
    """The name of a path's override from the command line: `ledger_ttl`."""
    return _SHORT.get(path, path).replace(".", "_")


def option_of(path: str) -> str:
    """The command line's word for a path: `--ledger-ttl`."""
    return "--" + argument_of(path).replace("_", "-")


# The one place where they are read


def load(
    argv_overrides: Mapping[str, Any],
    environ: Mapping[str, str],
    file: Path | None,
    *,
    serving: bool = True,
) -> Settings:
    """All that is set, checked. Raises SettingsError with every complaint at once.

    `argv_overrides` has the command line's options by name (`port`, `redis`, `upstream`,
    `admin_port`), None for those that were not given. `serving` false does without an upstream.
    """
    known = overridable()
    given = _from_environ(environ, known) | _from_argv(argv_overrides, known)
    reading = Reading(given, environ, file)
    raw = _from_file(file, reading)
    settings = reading.table(Settings, raw or {}, Spot())
    settings = replace(
        settings,
        upstreams=_upstreams(settings.upstreams, given.get("upstream"), reading),
        keys=tuple(_recognised(key) for key in settings.keys),
    )
    complaints = reading.complaints + _unknown_names(argv_overrides, environ, known, reading)
    table, wrong = providers.read(Path(settings.providers) if settings.providers else None)
    complaints += wrong
    complaints += pricefile.read(Path(settings.prices) if settings.prices else None)[1]
    if raw is not None:
        found = conflicts(settings, table, serving)
        complaints += [complaint for paths, complaint in found if not reading.bad & paths]
    if complaints:
        count = "1 setting" if len(complaints) == 1 else f"{len(complaints)} settings"
        raise SettingsError("\n  ".join((f"{count} cannot be used:", *complaints)))
    return settings


def _from_environ(environ: Mapping[str, str], known: Iterable[str]) -> dict[str, Given]:
    """What variables set. An empty one counts as unset: compose files pass on what is not there."""
    names = {path: variable_of(path) for path in known}
    return {
        path: Given(environ[name], name)
        for path, name in names.items()
        if environ.get(name) and not _is_service_link(name, environ[name])
    }


def _is_service_link(name: str, value: str) -> bool:
    return bool(_SERVICE_LINK.fullmatch(name)) or (
        name == "LETHE_PORT" and re.match(r"(tcp|udp|sctp)://", value) is not None
    )


def _from_argv(overrides: Mapping[str, Any], known: Iterable[str]) -> dict[str, Given]:
    return {
        path: Given(overrides[argument_of(path)], option_of(path))
        for path in known
        if overrides.get(argument_of(path)) is not None
    }


def _from_file(file: Path | None, reading: Reading) -> dict[str, Any] | None:
    """The file's tables, None where it cannot be read."""
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        reading.complain(Spot(), f"cannot be read: {reason}", str(file))
    except (ValueError, RecursionError) as error:
        reading.complain(Spot(), f"is not TOML: {error}", str(file))
    return None


def _unknown_names(
    overrides: Mapping[str, Any],
    environ: Mapping[str, str],
    known: Iterable[str],
    reading: Reading,
) -> list[str]:
    """Options and variables that set nothing, but for variables that hold a named secret."""
    arguments = sorted(argument_of(path) for path in known)
    variables = sorted(variable_of(path) for path in known)
    odd = [name for name in overrides if name not in arguments]
    odd_variables = sorted(
        name
        for name, value in environ.items()
        if name.startswith("LETHE_")
        and name not in (*variables, *reading.variables, *_NOT_SETTINGS)
        and not _is_service_link(name, value)
    )
    return [f"{name}: is unknown; {known_are(name, arguments)}" for name in odd] + [
        f"{name}: is unknown; {known_are(name, variables)}" for name in odd_variables
    ]


def _upstreams(
    rows: tuple[UpstreamSettings, ...], given: Given | None, reading: Reading
) -> tuple[UpstreamSettings, ...]:
    """The file's upstreams; a URL from outside is that of `default`, and makes it the first."""
    if given is None:
        return rows
    try:
        url = upstream_url(given.value)
    except ValueError as error:
        reading.complain(Spot("upstream.url"), str(error), given.where)
        return rows
    default = next((row for row in rows if row.name == "default"), UpstreamSettings())
    return (replace(default, url=url), *(row for row in rows if row is not default))


def _recognised(key: KeySettings) -> KeySettings:
    return replace(key, sha256=key.key_sha256) if key.key_sha256 else key
