"""Settings: command line, environment and a TOML file, read once into one frozen value.

Precedence: command line, environment, file, default. What `[table] key` is in the file is
`LETHE_TABLE_KEY` in the environment; what comes many times (`[[upstream]]`, `[[key]]`,
`[model_policies]`) stands in the file only, but for the URL of the default upstream. Secrets never
stand in the file: it names the environment variables that hold them. All complaints come at once.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from difflib import get_close_matches
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import SplitResult, urlsplit

from proxy import pricefile, providers
from proxy.core import artifact, policy
from proxy.core import tools as tool_names
from proxy.core.contract import Table as Contracts
from proxy.errors import SettingsError
from proxy.reading import (
    FLAG,
    SECONDS,
    Given,
    Kind,
    Reading,
    Secret,
    Spot,
    Table,
    known_are,
    shapes,
    shown,
    text,
    wanted,
    whole,
)

DEFAULT_POLICY = "after_artifact"
"""What holds where nobody chose a policy, and no contract knows a reason for another."""
_DAY = 86_400.0
_MIB = 1 << 20


# Kinds of our own


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


def _upstream_url(value: Any) -> str:
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


def _digest(key: str) -> str:
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
Url = Annotated[str, Kind(_upstream_url)]
RedisUrl = Annotated[str, Kind(_redis_url)]
Variable = Annotated[str, Kind(_variable)]
Sha256 = Annotated[str, Kind(_sha256)]
Regex = Annotated[str, Kind(_regex)]
File = Annotated[str, Kind(_file)]
Log = Annotated[str, Kind(_log)]


# What can be set


@dataclass(frozen=True, slots=True)
class ArtifactSettings:
    """What counts as writing or failing, beside the built-in tables (`core/artifact.py`).

    Names are those of the client's tools; separators, case and namespace do not count. A tool that
    is named here leaves the built-in tables that it stands in.
    """

    writing_tools: tuple[Text, ...] = ()
    """Tools that leave something durable, unless their result shows that they failed."""

    never_writing_tools: tuple[Text, ...] = ()
    """Tools that never do, whatever they are called with."""

    reading_tools: tuple[Text, ...] = ()
    """Tools that show what is there: error words in their results are no errors."""

    shell_tools: tuple[Text, ...] = ()
    """Tools that run shell commands, which are judged by what they run."""

    code_tools: tuple[Text, ...] = ()
    """Tools that run program text, which is judged by what it calls."""

    writing_patterns: tuple[Regex, ...] = ()
    """Regular expressions searched in shell commands: a hit is a write."""

    error_patterns: tuple[Regex, ...] = ()
    """Regular expressions searched in results (their first and last 12,000 characters): a hit is an
    error."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """One provider or engine. The first of them is the default one."""

    url: Url = ""
    """Base URL, with or without `/v1`; kept without a slash at its end. `--upstream` and
    LETHE_UPSTREAM give that of the default one."""

    name: Name = "default"
    """How logs, reports and `[[key]] upstream` call it."""

    models: tuple[Text, ...] = ()
    """Model name patterns (`*`, `?`, `[…]`) that go here."""

    keys: tuple[Name, ...] = ()
    """Aliases of keys that go here."""

    policy: PolicyName | None = None
    """Policy for this upstream, where neither request, key nor model names one."""

    contract: Name | None = None
    """Name of its contract (`lethe contracts`), where its host does not tell what it is."""

    priced_as: Name | None = None
    """Provider whose prices hold there (`lethe price --providers`), where its host does not tell:
    a gateway or a private address."""

    detect: Flag = True
    """Ask it once for its models (`GET …/models`), where neither its host nor `contract` tells what
    it is: engines say there what they are."""

    system_first: Flag | None = None
    """Whether it renders the system prompt before the tools, where its contract does not tell."""

    first_byte_timeout: Seconds = 600.0
    """Seconds from the request's last byte to the reply's first. An answer that is not streamed
    begins when it is finished, and models think for minutes; 600 is the OpenAI SDK's patience."""

    connect_timeout: Seconds = 10.0
    """Seconds to a usable connection."""

    max_connections: Annotated[int, whole(0)] = 0
    """Connections of one worker to this upstream; 0 for no bound."""

    ca_file: File | None = None
    """PEM bundle to trust instead of the system's."""

    client_cert: File | None = None
    """PEM certificate to show to the upstream."""

    client_key: File | None = None
    """Its PEM key, where it is not in the same file."""

    trust_env: Flag = True
    """Honour HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY."""

    api_key_env: Variable | None = None
    """Variable that holds the upstream's key, which takes the place of virtual keys."""

    api_key: Annotated[str | None, Secret("api_key_env")] = field(default=None, repr=False)

    restore: Literal["auto", "always", "never"] = "auto"
    """Whether reasoning that a client lost or altered is put back as it was generated. `auto`:
    where the contract requires it, or its cache holds what was generated; and not where
    `[ledger] history` is "digests", because replies are kept for it, as texts."""

    carrier: Literal["auto", "as_sent"] = "auto"
    """Whether reasoning moves to a field that this upstream reads, or stays in the one that the
    client sends it in."""

    echo_repair: Literal["auto", "never"] = "auto"
    """Whether arguments of tool calls that a client serialised anew leave as they were generated.
    `auto`: where the contract's cache holds what was generated."""

    preserve: Flag = False
    """Send, from a conversation's first request on, what keeps old reasoning in the prompt over a
    new user message, where the contract knows a word for it (`preserve`)."""

    affinity: Flag = False
    """Send a stable id of the conversation, by which the provider finds its cache again, where the
    contract names a place for one and the client sent none."""

    tool_order: Literal["off", "by_name", "late_last"] = "off"
    """Keep the order of a conversation's tools: that of its first request, sorted by name or as it
    came; tools that come late go behind."""

    pinned_patterns: tuple[Regex, ...] = ()
    """Regular expressions of values in the first system message that a client makes anew for every
    request: each leaves as it was in the conversation's first one. Only for what no model needs to
    read right, and not with `[ledger] history = "digests"`: the values are kept."""

    stream_usage: Literal["ask", "always", "refused"] | None = None
    """Whether a stream reports usage only if asked, always, or cannot be asked, where its contract
    does not tell."""


@dataclass(frozen=True, slots=True)
class KeySettings:
    """One client key, known by its digest. Exactly one of `key_env` and `key_sha256` says which."""

    alias: Name
    """Name in logs, metrics and scopes: renaming it starts its conversations anew."""

    key_env: Variable | None = None
    """Variable that holds the key."""

    key_sha256: Sha256 | None = None
    """SHA-256 of the key in hex."""

    sha256: Annotated[str, Secret("key_env", _digest)] = field(default="", repr=False)
    """What a credential is looked up by, whichever of the two was given."""

    policy: PolicyName | None = None
    """Policy for this key, until it sets another with `x-lethe-set-policy`."""

    allow_set_policy: Flag = True
    """Whether `x-lethe-set-policy` is taken from it."""

    off: Flag = False
    """Hard off: not one byte of its requests is changed, whatever any header says."""

    upstream: Name | None = None
    """Name of the upstream that all its requests go to."""

    virtual: Flag = False
    """Whether it is the proxy's own and the upstream's key takes its place."""

    artifact: ArtifactSettings = ArtifactSettings()
    """Added to the artifact rules for this key."""


@dataclass(frozen=True, slots=True)
class HorizonSettings:
    """How the policy `horizon` weighs a step: it is dropped where more is to come than its
    retention horizon (`lethe horizon`)."""

    by: Literal["auto", "bill", "operations"] = "auto"
    """Whether the horizon is one on the bill, in requests, or in operations, in positions (tokens
    to be processed). `auto`: on the bill where the model has a price, else in operations."""

    remaining: Annotated[int, whole(1, 10**9)] | None = None
    """What is expected to come still after a step, in that unit, where `horizon:n` does not say it.
    None: as past conversations of the key and task went on; every worker learns that by itself."""

    exchange_rate: Annotated[int, whole(1, 10**9)] = 124_000
    """P*: the attended pairs that cost as much as one position, in operations; of a model's
    architecture (`lethe horizon --architecture`). The default is the highest of the known open
    models: in doubt it keeps."""


MOST_SHADOWS = 8


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """Where verdicts and what was sent live."""

    redis: RedisUrl | None = field(default=None, repr=False)
    """URL of Redis 7, Redis 8 or Valkey. Without it all is held in the memory of the one worker."""

    ttl: Seconds = 7 * _DAY
    """Seconds that a conversation is kept after its last turn, not less than the provider's cache
    is kept."""

    timeout: Seconds = 0.05
    """Seconds to wait for Redis before an exchange goes on without it."""

    history: Literal["full", "digests"] = "full"
    """`full` keeps each message as it left, so that it can be shown; `digests` keeps no text."""

    max_entries: Count = 100_000
    """Conversations held in memory where there is no Redis; the least recently used go first."""

    max_bytes: Count = 6 * _MIB
    """Bytes held in memory where there is no Redis."""

    encryption_key_env: Variable | None = None
    """Variable that holds the key of encryption at rest: 32 bytes in base64 or hex."""

    encryption_key: Annotated[str | None, Secret("encryption_key_env")] = field(
        default=None, repr=False
    )


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The second listener: metrics, health, API and page."""

    host: Host = "127.0.0.1"
    """Address to listen on. Beyond loopback a token is required."""

    port: Port = 4101
    """Port to listen on; 0 lets the system choose."""

    token_env: Variable = "LETHE_ADMIN_TOKEN"
    """Variable that holds the token, sent as `Authorization: Bearer …`."""

    token: Annotated[str | None, Secret("token_env")] = field(default=None, repr=False)

    allowed_hosts: tuple[Host, ...] = ()
    """Names taken in the `Host` header beside loopback's and `host` (against DNS rebinding)."""


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What `/metrics` shows."""

    gen_ai: Flag = False
    """Also the OpenTelemetry GenAI names (`gen_ai_client_…`)."""

    model_labels: Annotated[int, whole(0, 200)] = 50
    """Models with a label of their own; the rest is `other`."""

    key_labels: Annotated[int, whole(0, 200)] = 50
    """Key aliases with a label of their own; the rest is `other`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it. `upstreams[0]` is the default one; there is none only where `load` was told so."""

    host: Host = "127.0.0.1"
    """Address to listen on."""

    port: Port = 4100
    """Port to listen on; 0 lets the system choose."""

    workers: Annotated[int, whole(1, 256)] = 1
    """Worker processes. More than one share their ledger through Redis."""

    policy: PolicyName | None = None
    """Policy where neither request, key, model nor upstream names one. None: what the contract
    names, else `after_artifact`."""

    shadow: tuple[ShadowName, ...] = ("drop", "after_artifact")
    """Policies of which `observe` tells, on every exchange, what they would have done and cost; 8
    at most."""

    providers: File | None = None
    """File of contracts of your own, laid over the built-in ones (`config/providers.toml`)."""

    prices: File | None = None
    """File of prices of your own, before those of the price list (`config/prices.toml`)."""

    secret_env: Variable = "LETHE_SECRET"
    """Variable with a secret that keys the digests of clients' credentials."""

    secret: Annotated[str, Secret("secret_env")] = field(default="", repr=False)

    scope_header: HeaderName | None = None
    """Header that names the caller where tokens rotate (OAuth), set by a gateway in front."""

    session_headers: tuple[HeaderName, ...] = (
        "x-session-id",
        "x-session-affinity",
        "session-id",
        "session_id",
        "thread-id",
        "x-claude-code-session-id",
        "x-litellm-session-id",
    )
    """Headers that name a session, strongest first, after `x-lethe-session`. Hints only."""

    rendered_params: tuple[Text, ...] = (
        "reasoning_effort",
        "tool_choice",
        "response_format",
        "chat_template_kwargs",
        "thinking",
        "enable_thinking",
    )
    """Body fields that providers render into the prompt: a change of one breaks the prefix."""

    max_body_bytes: Count = 32 * _MIB
    """Largest request body in bytes; above it the answer is 413."""

    virtual_keys: Flag = False
    """Only virtual keys of `[[key]]` are let in; any other is answered with 401."""

    log: Log = "stdout"
    """Where the line of each exchange goes: stdout, stderr, off or the path of a file."""

    drain_timeout: Seconds = 30.0
    """Seconds for open exchanges to end when the process is stopped."""

    horizon: HorizonSettings = HorizonSettings()
    ledger: LedgerSettings = LedgerSettings()
    admin: AdminSettings = AdminSettings()
    metrics: MetricsSettings = MetricsSettings()
    artifact: ArtifactSettings = ArtifactSettings()
    model_policies: Policies = ()
    """Model name pattern and policy, the first that fits."""

    upstreams: tuple[UpstreamSettings, ...] = ()
    keys: tuple[KeySettings, ...] = ()


# What becomes of them


def artifact_rules(settings: Settings, key: KeySettings | None = None) -> artifact.Rules:
    """The tables that hold for a key: the built-in ones, then what is set for all, then for it."""
    rules = _extended(artifact.DEFAULT, settings.artifact)
    return _extended(rules, key.artifact) if key else rules


def _extended(rules: artifact.Rules, own: ArtifactSettings) -> artifact.Rules:
    tools = {
        table: frozenset(map(tool_names.bare, names))
        for table, names in asdict(own).items()
        if table.endswith("_tools")
    }
    named = frozenset[str]().union(*tools.values())
    return replace(
        rules,
        writing_patterns=(*rules.writing_patterns, *map(re.compile, own.writing_patterns)),
        error_patterns=(*rules.error_patterns, *map(re.compile, own.error_patterns)),
        **{table: getattr(rules, table) - named | names for table, names in tools.items()},
    )


# Where else they come from

_SHORT = {"ledger.redis": "redis"}
_FILE_ONLY = frozenset({"model_policies"})
# The command line's (where the file is), and those of the tests and of .ci/run.
_NOT_SETTINGS = frozenset({"LETHE_CONFIG", "LETHE_SHARED", "LETHE_VENV"})
# Kubernetes writes these into every container that runs beside a service called `lethe`.
_SERVICE_LINK = re.compile(r"LETHE_(SERVICE_(HOST|PORT)\w*|PORT_\d+_(TCP|UDP|SCTP)\w*)")


def overridable() -> dict[str, Kind]:
    """What environment and command line can set, by path (`port`, `ledger.ttl`)."""
    found: dict[str, Kind] = {"upstream": Kind(_upstream_url)}
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
        found = _conflicts(settings, table, serving)
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
        url = _upstream_url(given.value)
    except ValueError as error:
        reading.complain(Spot("upstream.url"), str(error), given.where)
        return rows
    default = next((row for row in rows if row.name == "default"), UpstreamSettings())
    return (replace(default, url=url), *(row for row in rows if row is not default))


def _recognised(key: KeySettings) -> KeySettings:
    return replace(key, sha256=key.key_sha256) if key.key_sha256 else key


# What does not go together


def is_loopback(host: str) -> bool:
    """Whether nobody beyond this machine can reach a listener there."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


Conflict = tuple[set[str], str]
"""The paths that are at odds, and the complaint; not made where one of them is bad by itself."""


def _conflicts(settings: Settings, table: Contracts, serving: bool) -> Iterator[Conflict]:
    if serving:
        yield from _without_upstream(settings)
    yield from _shadows_at_odds(settings)
    yield from _without_shared_ledger(settings)
    yield from _listeners_at_odds(settings)
    for number, up in enumerate(settings.upstreams, 1):
        yield from _upstream_at_odds(settings, up, f"[[upstream]] {number} ({up.name})")
        yield from _without_contract(table, up, f"[[upstream]] {number} ({up.name})")
    for number, key in enumerate(settings.keys, 1):
        yield from _key_at_odds(settings, key, f"[[key]] {number} ({key.alias})")
    yield from _keys_at_odds(settings)


def _without_upstream(settings: Settings) -> Iterator[Conflict]:
    if not settings.upstreams:
        yield (
            {"upstream", "upstream.url"},
            "no upstream: give --upstream URL, set LETHE_UPSTREAM or write an [[upstream]] table",
        )


def _shadows_at_odds(settings: Settings) -> Iterator[Conflict]:
    names = settings.shadow
    if len(names) > MOST_SHADOWS:
        yield {"shadow"}, f"shadow: got {len(names)} policies; wanted {MOST_SHADOWS} at most"
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield {"shadow"}, f"shadow: {name} stands twice; each policy is looked at once"


def _without_shared_ledger(settings: Settings) -> Iterator[Conflict]:
    if settings.workers > 1 and settings.ledger.redis is None:
        yield (
            {"workers", "ledger.redis"},
            f"{settings.workers} workers without Redis would each keep verdicts of their own and "
            "break each other's prefixes: give --redis URL (LETHE_REDIS, [ledger] redis), or run "
            "1 worker",
        )


def _listeners_at_odds(settings: Settings) -> Iterator[Conflict]:
    admin = settings.admin
    if not is_loopback(admin.host) and admin.token is None:
        yield (
            {"admin.host", "admin.token_env"},
            f"[admin] host {admin.host} can be reached from outside, and there is no token: set "
            f"{admin.token_env}, or listen on 127.0.0.1",
        )
    if admin.port == settings.port != 0:
        yield (
            {"port", "admin.port"},
            f"port and [admin] port are both {admin.port}; each listener wants its own",
        )


def _upstream_at_odds(settings: Settings, up: UpstreamSettings, where: str) -> Iterator[Conflict]:
    if not up.url:
        yield {"upstream.url"}, f"{where}: url is wanted"
    if sum(up.name == other.name for other in settings.upstreams) > 1:
        yield {"upstream.name"}, f"{where}: another upstream has this name; each wants its own"
    if up.client_key and not up.client_cert:
        yield (
            {"upstream.client_cert", "upstream.client_key"},
            f"{where}: client_key without client_cert",
        )
    aliases = [key.alias for key in settings.keys]
    for alias in up.keys:
        if alias not in aliases:
            yield (
                {"key.alias", "key", "upstream.keys"},
                f"{where}: no [[key]] has the alias {alias}; {known_are(alias, aliases)}",
            )


def _without_contract(table: Contracts, up: UpstreamSettings, where: str) -> Iterator[Conflict]:
    if up.contract is not None and table.named(up.contract) is None:
        close = providers.close_to(up.contract, [contract.name for contract in table.contracts])
        yield (
            {"upstream.contract", "providers"},
            f"{where}: no contract is named {up.contract}; {close}",
        )


def _key_at_odds(settings: Settings, key: KeySettings, where: str) -> Iterator[Conflict]:
    if (key.key_env is None) == (key.key_sha256 is None):
        yield (
            {"key.key_env", "key.key_sha256"},
            f"{where}: wanted either key_env or key_sha256, to know the key by",
        )
    names = [up.name for up in settings.upstreams]
    if key.upstream is not None and key.upstream not in names:
        yield (
            {"upstream", "upstream.name", "key.upstream"},
            f"{where}: no [[upstream]] is named {key.upstream}; {known_are(key.upstream, names)}",
        )
    if key.virtual:
        ups = [up for up in settings.upstreams if key.upstream in (None, up.name)]
        lacking = [up.name for up in ups if up.api_key is None]
        if lacking:
            yield (
                {"upstream", "upstream.name", "upstream.api_key_env", "key.upstream"},
                f"{where}: is virtual, and no api_key_env gives the key of {', '.join(lacking)}",
            )


def _keys_at_odds(settings: Settings) -> Iterator[Conflict]:
    aliases = [key.alias for key in settings.keys]
    for alias in sorted({alias for alias in aliases if aliases.count(alias) > 1}):
        yield {"key.alias"}, f"[[key]]: the alias {alias} stands twice; each key wants its own"
    by_digest: dict[str, list[str]] = {}
    for key in settings.keys:
        by_digest.setdefault(key.sha256, []).append(key.alias)
    for digest, names in by_digest.items():
        if digest and len(names) > 1:
            yield {"key.alias"}, f"[[key]]: {', '.join(names)} are one and the same key"
    if settings.virtual_keys and not any(key.virtual for key in settings.keys):
        yield (
            {"virtual_keys", "key", "key.virtual"},
            "virtual_keys is true and no [[key]] has virtual = true: nobody could get in",
        )
