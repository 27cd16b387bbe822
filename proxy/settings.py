"""What can be set, with each default and what it means: one frozen value, read once (`loading`)."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Literal

from proxy.core import artifact
from proxy.core import tools as tool_names
from proxy.kinds import (
    Count,
    File,
    Flag,
    HeaderName,
    Host,
    Log,
    Name,
    Policies,
    PolicyName,
    Port,
    RedisUrl,
    Regex,
    Seconds,
    Sha256,
    ShadowName,
    Text,
    Url,
    Variable,
    digest,
)
from proxy.reading import Secret, whole

DEFAULT_POLICY = "after_artifact"
"""What holds where nobody chose a policy, and no contract knows a reason for another."""
_DAY = 86_400.0
_MIB = 1 << 20


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

    sha256: Annotated[str, Secret("key_env", digest)] = field(default="", repr=False)
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
