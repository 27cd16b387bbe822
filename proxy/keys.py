"""Who calls: the key behind a credential, its scope, and which policy and upstream hold for its
request.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256

import msgspec

from proxy.core import fingerprint, headers, policy
from proxy.core.policy import Policy
from proxy.errors import BadHeader, KeyDenied, KeyUnknown
from proxy.settings import DEFAULT_POLICY, KeySettings, Settings, UpstreamSettings

Names = Mapping[bytes, bytes]


class Caller(msgspec.Struct, frozen=True, gc=False):
    """`alias` is a configured name or empty; `known` says that there was a credential at all."""

    scope: bytes
    alias: str
    settings: KeySettings | None
    has_credential: bool


class Keyring:
    """The configured keys by the digest of their credential."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._by_digest = {key.sha256: key for key in settings.keys}
        self._policies = {name: policy.parse(name) for name in _named(settings)}

    def caller(self, named: Names, trusted: bool = True) -> Caller:
        """Who sent these headers. Raises KeyUnknown where virtual keys are on and this is none.

        Not `trusted`: no gateway stands before this port, so that anybody could name a scope with
        the `scope_header`, and it does not count.
        """
        credential = headers.credential(named)
        key = None
        if credential and self._by_digest:
            key = self._by_digest.get(sha256(credential).hexdigest())
        if self._settings.virtual_keys and (key is None or not key.virtual):
            raise KeyUnknown("this key is not one of the proxy's keys; ask who runs it for one")
        if key is not None:
            return Caller(fingerprint.digest(b"alias", key.alias.encode()), key.alias, key, True)
        secret = self._settings.secret.encode()
        header = self._settings.scope_header
        if trusted and header and (stable := named.get(header.encode())):
            # A namespace of its own: no key can be made that has the scope of a header's value.
            scope = fingerprint.scope_of(fingerprint.digest(b"header", stable), secret)
        else:
            scope = fingerprint.scope_of(credential, secret)
        return Caller(scope, "", None, credential is not None)

    def upstream(self, caller: Caller, model: str) -> UpstreamSettings:
        """The first upstream that the key names, else one whose patterns fit, else the default
        one.
        """
        ups = self._settings.upstreams
        if caller.settings and caller.settings.upstream:
            return next(up for up in ups if up.name == caller.settings.upstream)
        for up in ups:
            if (caller.alias and caller.alias in up.keys) or _fits(model, up.models):
                return up
        return ups[0]

    def policy(
        self,
        caller: Caller,
        named: Names,
        setting: str | None,
        model: str,
        up: UpstreamSettings,
        of_contract: str = "",
    ) -> Policy:
        """What holds for this request, by precedence; `of_contract` is the policy that its contract
        names. Raises BadHeader for a policy that is none.
        """
        key = caller.settings
        if key and key.off:
            return policy.parse("off")
        header = named.get(b"x-lethe-policy")
        if header is not None:
            return from_header(b"x-lethe-policy", header)
        chosen = (
            _readable(setting)
            or (key.policy if key else None)
            or self._of_model(model)
            or up.policy
        )
        return self._parsed(chosen or self._settings.policy or of_contract or DEFAULT_POLICY)

    def _of_model(self, model: str) -> str | None:
        rows = self._settings.model_policies
        return next((name for pattern, name in rows if fnmatchcase(model, pattern)), None)

    def _parsed(self, name: str) -> Policy:
        found = self._policies.get(name)
        return found if found is not None else policy.parse(name)


def _readable(setting: str | None) -> str | None:
    """A set policy as it was stored; none where a newer version stored one that is not known
    here.
    """
    try:
        return str(policy.parse(setting)) if setting else None
    except ValueError:
        return None


def from_header(name: bytes, value: bytes) -> Policy:
    """The policy in a header. Raises BadHeader."""
    try:
        return policy.parse(value.decode("ascii"))
    except ValueError:
        known = ", ".join(policy.NAMES)
        raise BadHeader(f"{name.decode()}: this is no policy; known: {known}") from None


def wanted_setting(caller: Caller, named: Names) -> str | None:
    """The policy that the key sets for itself with this request. Raises KeyDenied and BadHeader."""
    value = named.get(b"x-lethe-set-policy")
    if value is None:
        return None
    if not caller.has_credential:
        raise KeyDenied("x-lethe-set-policy: a request without a credential cannot set a policy")
    if caller.settings and not caller.settings.allow_set_policy:
        raise KeyDenied("x-lethe-set-policy: this key may not set its policy (allow_set_policy)")
    return str(from_header(b"x-lethe-set-policy", value))


def _fits(model: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in patterns)


def _named(settings: Settings) -> set[str]:
    names = {settings.policy, DEFAULT_POLICY, *(key.policy for key in settings.keys)}
    names |= {up.policy for up in settings.upstreams} | {
        name for _, name in settings.model_policies
    }
    return {name for name in names if name}
