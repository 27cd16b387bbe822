"""What one provider or engine allows and does with reasoning and prompt caches.

A contract is data with a source and a date. What is not known is not guessed: nothing is expected
of an upstream without one, and what is sent to it is what every provider takes.

A contract says what a host or an engine does, a template what a model does wherever its own chat
template renders the prompt: on engines and on hosts of open weights it is laid over the contract.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace


class Reuse(Enum):
    """What stays in the cache when a request is over."""

    GENERATED = "prompt+generated"
    PROMPT = "prompt"
    NONE = "none"


class Drops(Enum):
    """Where the reasoning of a finished step may be taken out."""

    ANY = "any"
    NEVER = "never"
    ALL_OR_NOTHING = "all_or_nothing"


class Encoding(Enum):
    """What is written for dropped reasoning in a string carrier."""

    EMPTY = "empty"
    ABSENT = "absent"


class Requires(Enum):
    """Which assistant messages must have the string carrier, be it empty; ABSENCE: none may."""

    NOTHING = "nothing"
    TOOL_CALLS = "tool_calls"
    EVERY = "every"
    ABSENCE = "absence"


class UserTurn(Enum):
    """What a new user message does to the reasoning before it, in the provider's own template."""

    KEEPS = "keeps"
    DROPS = "drops"
    STUB = "stub"


class StreamUsage(Enum):
    ASK = "ask"
    ALWAYS = "always"
    REFUSED = "refused"


class Remedy(Enum):
    """What mends a request that was refused with a 400."""

    EMPTY = "empty"
    RESTORE = "restore"
    ABSENT = "absent"
    KEEP = "keep"


class CacheRule(msgspec.Struct, frozen=True):
    """`block` and `minimum` in tokens, `ttl` in seconds (None: not known)."""

    reuse: Reuse
    block: int = 1
    minimum: int = 0
    ttl: float | None = None


class Pattern(msgspec.Struct, frozen=True):
    """A regular expression, searched without case in the beginning of a 400, and what mends
    it.
    """

    error: str
    remedy: Remedy


class Affinity(msgspec.Struct, frozen=True):
    """Where a stable id of the conversation is taken: a member of the body or a header."""

    body: str = ""
    header: str = ""


class Contract(msgspec.Struct, frozen=True):
    """What one host or engine does.

    `hosts`, `models` and `owned_by` are patterns (`*`, `?`, `[…]`) of what it is for: a host, or
    host and path; a model; what an engine calls itself in its list of models. `templated`: the
    model's own template renders the prompt. `reads` are the carriers that are read back from the
    history, the preferred one first; `writes` is the one its replies come in. Carriers are
    `reasoning_content`, `reasoning`, `reasoning_text`, `reasoning_details`, `content_parts` and
    `think`. `seals_may_go`: signed and encrypted items may be removed, whole. `preserve` is JSON by
    top-level member: what keeps old reasoning in the prompt over a new user message; `{}` says that
    nothing does here, None that it is not known. `rendered` are the members that are rendered
    before the messages. `reports_cache`: a count of 0 cached tokens means what it says; where it is
    false nothing is told of the cache, and `usage_hint` says what to do.
    """

    name: str
    hosts: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    owned_by: tuple[str, ...] = ()
    templated: bool = False
    reads: tuple[str, ...] = ()
    writes: str = ""
    drops: Drops = Drops.ANY
    encoding: Encoding = Encoding.EMPTY
    seals_may_go: bool = False
    requires: Requires = Requires.NOTHING
    user_turn: UserTurn = UserTurn.KEEPS
    preserve: msgspec.Raw | None = None
    system_first: bool = False
    rendered: tuple[str, ...] = ()
    cache: CacheRule | None = None
    reports_cache: bool = True
    usage_hint: str = ""
    stream_usage: StreamUsage = StreamUsage.ASK
    errors: tuple[Pattern, ...] = ()
    affinity: Affinity | None = None
    default_policy: str = ""
    warning: str = ""
    source: str = ""
    date: str = ""


class Template(msgspec.Struct, frozen=True):
    """What the chat template of a model family does, wherever the model is served. None, `()` and
    an empty text leave what the contract says.
    """

    name: str
    models: tuple[str, ...] = ()
    requires: Requires | None = None
    user_turn: UserTurn | None = None
    preserve: msgspec.Raw | None = None
    system_first: bool | None = None
    rendered: tuple[str, ...] = ()
    default_policy: str = ""
    warning: str = ""
    source: str = ""
    date: str = ""


class Table(msgspec.Struct, frozen=True):
    """Rows in the order in which they are tried. `errors` hold on every upstream, since gateways
    hand on the words of the providers behind them.
    """

    contracts: tuple[Contract, ...] = ()
    templates: tuple[Template, ...] = ()
    errors: tuple[Pattern, ...] = ()

    def named(self, name: str) -> Contract | None:
        return next((contract for contract in self.contracts if contract.name == name), None)


class Asked(msgspec.Struct, frozen=True):
    """For what a contract is sought. `owned_by` is what the engine calls itself in its list of
    models, empty where it was not asked or did not say; `named` comes from the configuration.
    """

    base_url: str
    model: str = ""
    owned_by: str = ""
    named: str = ""


class Chosen(msgspec.Struct, frozen=True):
    """A contract, and in words why it is this one."""

    contract: Contract
    why: str


UNKNOWN = Contract(
    "unknown",
    templated=True,
    source="no row fits: nothing is expected of this upstream, and it gets what every provider "
    'takes. Name one with contract = "…", or let lethe doctor find it out',
)


def choose(table: Table, asked: Asked) -> Chosen:
    """The contract by name, else the first that fits; then the template of the model over it."""
    contract, why = _contract(table, asked)
    template, fits = _template(table, asked.model) if contract.templated else (None, "")
    if template is not None:
        contract = laid_over(contract, template)
        why = f"{why}; template {template.name} laid over it: {fits}"
    return Chosen(with_words_of_all(contract, table.errors), why)


def _contract(table: Table, asked: Asked) -> tuple[Contract, str]:
    if asked.named:
        return _named(table, asked)
    for contract in table.contracts:
        if why := _fits(contract, asked):
            return contract, why
    return UNKNOWN, "no row fits its host, its model or what it calls itself"


def _named(table: Table, asked: Asked) -> tuple[Contract, str]:
    """The row of that name. One for all models of a provider stands for the provider: a row of the
    same hosts and owners whose models fit goes before it.
    """
    why = f'named: contract = "{asked.named}"'
    named = table.named(asked.named)
    if named is None:
        return UNKNOWN, f"{why}, which is in no table"
    if named.models or not (named.hosts or named.owned_by):
        return named, why
    for contract in table.contracts:
        same = (contract.hosts, contract.owned_by) == (named.hosts, named.owned_by)
        if same and (model := first_fit(contract.models, asked.model)):
            return contract, f"{why}, model: {model}"
    return named, why


def _fits(contract: Contract, asked: Asked) -> str:
    """Why a row fits, empty where it does not. A row without a pattern goes by its name alone."""
    reasons = []
    if contract.hosts or contract.owned_by:
        host = first_fit(contract.hosts, *places(asked.base_url))
        owner = first_fit(contract.owned_by, asked.owned_by)
        if not host and not owner:
            return ""
        reasons.append(f"host: {host}" if host else f"owned_by: {owner}")
    if contract.models:
        model = first_fit(contract.models, asked.model)
        if not model:
            return ""
        reasons.append(f"model: {model}")
    return ", ".join(reasons)


def _template(table: Table, model: str) -> tuple[Template | None, str]:
    for template in table.templates:
        if fit := first_fit(template.models, model):
            return template, f"model: {fit}"
    return None, ""


def first_fit(patterns: Iterable[str], *texts: str) -> str:
    """`text fits pattern` for the first that does; letter case does not count."""
    for pattern in patterns:
        for text in texts:
            if text and fnmatchcase(text.lower(), pattern.lower()):
                return f"{text} fits {pattern}"
    return ""


def places(base_url: str) -> tuple[str, ...]:
    """What `hosts` patterns are held against: the host, and host and path."""
    parts = urlsplit(base_url)
    host = parts.hostname or ""
    return (host, host + parts.path) if host else ()


def laid_over(contract: Contract, template: Template) -> Contract:
    """The contract with what the model's template says. Its own `preserve` stays: hosts have their
    own word for what engines take as a parameter of the template.
    """
    preserve = template.preserve if contract.preserve is None else contract.preserve
    system_first = template.system_first
    return replace(
        contract,
        requires=template.requires or contract.requires,
        user_turn=template.user_turn or contract.user_turn,
        preserve=preserve,
        system_first=contract.system_first if system_first is None else system_first,
        rendered=joined(contract.rendered, template.rendered),
        default_policy=template.default_policy or contract.default_policy,
        warning=template.warning or contract.warning,
        source=f"{contract.source}; template {template.name}: {template.source}",
    )


def with_words_of_all(contract: Contract, errors: tuple[Pattern, ...]) -> Contract:
    """The contract with the refusals that hold everywhere, after its own."""
    return replace(contract, errors=(*contract.errors, *errors))


def joined(first: Iterable[str], second: Iterable[str]) -> tuple[str, ...]:
    """Both, each name once."""
    return tuple(dict.fromkeys((*first, *second)))
