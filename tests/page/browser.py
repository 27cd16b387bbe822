"""A real browser, headless, for tests of the page; where there is none they skip and say so."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


@dataclass(slots=True)
class Seen:
    """What a page did beside what it shows: addresses that it asked for, errors, dialogs."""

    asked: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def said(self, message: Any) -> None:
        if message.type == "error":
            self.errors.append(message.text)


@asynccontextmanager
async def browsing() -> AsyncIterator[Any]:
    """A browser; skips the test where there is none."""
    playwright = pytest.importorskip(
        "playwright.async_api", reason="the page is tested in a browser: pip install playwright"
    )
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip(f"the page is tested in a browser, and none is installed: {', '.join(_NAMES)}")
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=path, args=list(_OPTIONS))
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def opened(
    browser: Any, url: str, *, waits: bool = False, **context: Any
) -> AsyncIterator[tuple[Any, Seen]]:
    """A page at an address, in a profile of its own, and what it does. `waits`: its clock is one
    that `a_while` puts forward.
    """
    profile = await browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
    page = await profile.new_page()
    page.set_default_timeout(15_000)
    seen = Seen()
    page.on("request", lambda request: seen.asked.append(request.url))
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("console", lambda message: seen.said(message))
    page.on("dialog", lambda dialog: seen.dialogs.append(dialog.message))
    if waits:
        await page.clock.install()
    await page.goto(url)
    try:
        yield page, seen
    finally:
        await profile.close()


async def a_while(page: Any) -> None:
    """The page's own pause between two looks is over."""
    await page.clock.fast_forward(3_000)


async def first_paint(page: Any) -> float:
    """Milliseconds from the start of the navigation, as the browser measured it."""
    script = """() => new Promise((told) => {
        const look = () => {
            const paint = performance.getEntriesByName("first-contentful-paint")[0];
            if (paint) told(paint.startTime); else setTimeout(look, 20);
        };
        look();
    })"""
    return float(await page.evaluate(script))


async def until(page: Any, script: str) -> None:
    """Wait until a script is true. The page's own policy forbids it to evaluate a text."""
    async with asyncio.timeout(15):
        while not await page.evaluate(script):  # noqa: ASYNC110  (another process tells it)
            await asyncio.sleep(0.02)
