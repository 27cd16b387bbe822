"""Signing in to the page, and out of it."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from proxy.errors import KeyUnknown
from proxy.page import session
from proxy.page.frame import Frame

_HOME = "/lethe/ui"
_FORM = 8 * 1024
"""Bytes of a form that are read."""


def add(page: APIRouter, frame: Frame) -> None:
    doors = frame.doors

    @page.post("/sign-in")
    async def sign_in(request: Request) -> Response:
        """Takes the admin token or a client's key, and gives a cookie for it."""
        token = doors.settings.admin.token
        secret = await _field(request, "secret")
        if not token:
            return RedirectResponse(_HOME, 303)
        if not secret:
            return frame.gate(refused=True)
        try:
            scope = frame.scoped(_as_if(request, secret))
        except KeyUnknown:
            return frame.gate(refused=True)
        answer = RedirectResponse(_HOME, 303)
        value = session.issued(token, scope, doors.clock() + session.LASTS)
        answer.set_cookie(
            session.COOKIE, value, max_age=int(session.LASTS), path="/lethe", httponly=True,
            samesite="strict", secure=_by_https(request),
        )  # fmt: skip
        return answer

    @page.post("/sign-out")
    async def sign_out() -> Response:
        answer = RedirectResponse(_HOME, 303)
        answer.delete_cookie(session.COOKIE, path="/lethe")
        return answer


async def _field(request: Request, name: str) -> str:
    """A field of a small form; empty where it is not there, or the form is none."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _FORM:
            return ""
    values = parse_qs(body.decode("utf-8", "replace")).get(name, [""])
    return values[0].strip()


def _as_if(request: Request, secret: str) -> Request:
    """The request as it would be with that credential, and no cookie."""
    gone = (b"authorization", b"api-key", b"x-api-key", b"cookie")
    kept = [(name, value) for name, value in request.headers.raw if name not in gone]
    credential = (b"authorization", b"Bearer " + secret.encode("utf-8", "replace"))
    return Request({**request.scope, "headers": [*kept, credential]})


def _by_https(request: Request) -> bool:
    forwarded = request.headers.get("x-forwarded-proto", request.url.scheme)
    return forwarded.partition(",")[0].strip() == "https"
