"""Every failure that is raised on purpose, in one tree, with the status and type a client sees.

ProxyError
├── SettingsError          the process does not start
├── LedgerError            503   the admin port alone: an exchange goes on by law 6
├── BodyTooLarge           413
├── HeadersTooLarge        431
├── RequestTooSlow         408
├── KeyUnknown             401   only where virtual keys are on
├── KeyDenied              403   the key may not do this (set a policy, see another scope)
├── BadHeader              400   an x-lethe-* header that cannot be read
├── Draining               503
├── ClientGone             499   never sent: there is nobody left to read it
├── UpstreamUnreachable    502
└── UpstreamTimeout        504
"""

from __future__ import annotations

from typing import ClassVar


class ProxyError(Exception):
    """Base of all. `status` and `type` are what an OpenAI client sees; the message says what to
    do.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "proxy_error"
    code: ClassVar[str] = "proxy_error"


class InternalError(ProxyError):
    """What was not foreseen; the request was not answered by anybody else."""

    code = "internal"


class SettingsError(ProxyError):
    """One or more settings cannot be used; the message lists every complaint."""

    code = "settings"


class LedgerError(ProxyError):
    """The store did not answer in time, or answered what cannot be read."""

    status = 503
    type = "unavailable_error"
    code = "ledger"


class BodyTooLarge(ProxyError):
    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class HeadersTooLarge(ProxyError):
    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"


class RequestTooSlow(ProxyError):
    """The client did not send what it had begun."""

    status = 408
    type = "invalid_request_error"
    code = "request_too_slow"


class KeyUnknown(ProxyError):
    status = 401
    type = "authentication_error"
    code = "key_unknown"


class KeyDenied(ProxyError):
    status = 403
    type = "permission_error"
    code = "key_denied"


class BadHeader(ProxyError):
    status = 400
    type = "invalid_request_error"
    code = "bad_header"


class Draining(ProxyError):
    status = 503
    type = "unavailable_error"
    code = "draining"


class ClientGone(ProxyError):
    """The client left before its exchange was over. The status is nginx's, for accounts only."""

    status = 499
    type = "client_error"
    code = "client_gone"


class UpstreamUnreachable(ProxyError):
    status = 502
    type = "upstream_error"
    code = "upstream_unreachable"


class UpstreamTimeout(ProxyError):
    status = 504
    type = "upstream_error"
    code = "upstream_timeout"
