"""What every part of the page is handed: the doors, the assets, and who may see what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response

from proxy import __version__
from proxy.doors import Doors
from proxy.page import session
from proxy.page.access import Scoped
from proxy.page.assets import Assets, html


@dataclass(frozen=True, slots=True)
class Frame:
    doors: Doors
    assets: Assets
    scoped: Scoped

    async def laid(self, template: str, values: Callable[[], Mapping[str, Any]]) -> str:
        """Lays out a template, and before it its values, off the loop: that one is the clients'."""
        return await asyncio.to_thread(lambda: self.assets.render(template, **values()))

    def common(
        self, scope: bytes | None, request: Request, state: str | None = None
    ) -> dict[str, Any]:
        """What every whole page shows. `state` is the ledger's, where it was read."""
        settings, health = self.doors.settings, self.doors.ledger.health()
        return {
            "release": __version__,
            "signed_in": session.COOKIE in request.cookies,
            "own_only": scope is not None,
            "history": settings.ledger.history,
            "ledger": state or health.state,
            "shared": health.shared,
            "address": f"http://127.0.0.1:{settings.port or 4100}/v1",
        }

    def gate(self, refused: bool = False) -> Response:
        """Where somebody is asked who they are."""
        token_env = self.doors.settings.admin.token_env
        text = self.assets.render("gate.html", refused=refused, token_env=token_env)
        return html(text, 401)
