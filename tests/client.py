"""A client of servers on loopback."""

from __future__ import annotations

import httpx


def http_client(timeout: float = 20) -> httpx.AsyncClient:
    """It knows no certificates: to load them takes longer than most of what is asked here."""
    return httpx.AsyncClient(timeout=timeout, trust_env=False, verify=False)
