"""A proxy before a provider that answers every conversation: fixtures for what is shown of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.journey.provider import Provider, providing
from tests.journey.proxy_server import Running, running, settings_for
from tests.page.talk import answers


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with providing(answers) as opened:
        yield opened


@pytest.fixture
async def proxy(provider: Provider) -> AsyncIterator[Running]:
    async with running(settings_for(provider.url)) as opened:
        yield opened
