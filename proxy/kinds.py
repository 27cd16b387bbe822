"""Kinds of settings that are our own: policies, URLs, names of variables, digests, patterns, files.

Each says what came, what was wanted and what to do; what may hold a secret is not shown.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from proxy.core import policy
from proxy.reading import FLAG, SECONDS, Kind, shown, text, wanted, whole


def _policy(value: Any) -> str:
    if not isinstance(value, str):
        raise wanted(value, f"one of {', '.join(policy.NAMES)}")
    try:
        return str(policy.parse(value))
    except ValueError as error:
        close = get_close_matches(value, policy.NAMES, 1)
        raise ValueError("; ".join((str(error), *(f"did you mean {n}?" for n in close)))) from None


def _shadow(value: Any) -> str:
    """A policy that can be looked at before it is used."""
    name = _policy(value)
    if policy.parse(name).name in (policy.Name.KEEP, policy.Name.OBSERVE, policy.Name.OFF):
        raise ValueError(
            f"got {shown(value)}; wanted a policy that drops something: `observe` itself sends "
            "what `keep` sends, and tells of it"
        )
    return name


def _policies(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping):
        raise wanted(value, "a table of model patterns and policies")
    return tuple((pattern, _policy(name)) for pattern, name in value.items())


def upstream_url(value: Any) -> str:
    what = "an http or https URL with a host, with or without /v1"
    parts = _split(value)
    if isinstance(value, str) and "@" in value:
        raise ValueError("wanted a URL without a credential (what came is not shown)")
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise wanted(value, what)
    if parts.query or parts.fragment:
        raise wanted(value, f"{what}, and no query or fragment")
    return str(value).rstrip("/")


def _redis_url(value: Any) -> str:
    """Its shape; the ledger reads the rest. What came may hold a password, and is not shown."""
    what = "redis://host:6379/0, rediss://…, unix:///path, redis+sentinel://… or redis+cluster://…"
    refused = ValueError(f"wanted {what} (what came is not shown)")
    if not isinstance(value, str) or not re.fullmatch(_REDIS, value):
        raise refused
    if value.startswith(("redis://", "rediss://")):
        parts = _split(value)
        if parts is None or not parts.hostname:
            raise refused
    return value


_REDIS = r"(rediss?(\+(sentinel|cluster))?|unix)://\S+"


def _split(url: Any) -> SplitResult | None:
    """The parts of a URL; None for what is none."""
    if not isinstance(url, str) or re.search(r"\s", url):
        return None
    try:
        parts = urlsplit(url)
        return parts if parts.port != 0 else None
    except ValueError:
        return None


def _variable(value: Any) -> str:
    # Lower case is refused so that a key is, pasted here by mistake; what came is not shown.
    if isinstance(value, str) and re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
        return value
    raise ValueError("wanted the name of an environment variable, in capitals (not its value)")


def _sha256(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[0-9a-fA-F]{64}", value):
        return value.lower()
    raise ValueError('wanted the key\'s SHA-256 in 64 hex digits: printf %s "$KEY" | sha256sum')


def digest(key: str) -> str:
    """What a key is looked up by."""
    return sha256(key.strip().encode()).hexdigest()


def _regex(value: Any) -> str:
    if not isinstance(value, str) or value == "":
        raise wanted(value, "a regular expression")
    try:
        re.compile(value)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"got {shown(value)}; wanted a regular expression: {error}") from None
    return value


def _file(value: Any) -> str:
    if isinstance(value, str) and Path(value).is_file() and os.access(value, os.R_OK):
        return value
    raise wanted(value, "a file that can be read")


def _log(value: Any) -> str:
    if not isinstance(value, str) or value == "":
        raise wanted(value, "stdout, stderr, off or the path of a file")
    if value not in ("stdout", "stderr", "off") and not Path(value).absolute().parent.is_dir():
        raise ValueError(f"got {shown(value)}, whose folder does not exist; or stdout, stderr, off")
    return value


Port = Annotated[int, whole(0, 65_535)]
Count = Annotated[int, whole(1)]
Seconds = Annotated[float, SECONDS]
Flag = Annotated[bool, FLAG]
Text = Annotated[str, text("a text", r".+")]
Host = Annotated[str, text("a host name or address", r"[^\s/@]+")]
HeaderName = Annotated[str, text("a header name in lower case", r"[a-z0-9!#$%&'*+.^_`|~-]+")]
Name = Annotated[str, text("a name of up to 64 letters, digits, . _ -", r"[A-Za-z0-9._-]{1,64}")]
PolicyName = Annotated[str, Kind(_policy)]
ShadowName = Annotated[str, Kind(_shadow)]
Policies = Annotated[tuple[tuple[str, str], ...], Kind(_policies)]
Url = Annotated[str, Kind(upstream_url)]
RedisUrl = Annotated[str, Kind(_redis_url)]
Variable = Annotated[str, Kind(_variable)]
Sha256 = Annotated[str, Kind(_sha256)]
Regex = Annotated[str, Kind(_regex)]
File = Annotated[str, Kind(_file)]
Log = Annotated[str, Kind(_log)]
