"""One examination under way: who is asked, in which dialect, and how a hopeless one ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from proxy.doctor.answers import Answer
from proxy.doctor.door import Door
from proxy.doctor.prompts import Dialect
from proxy.errors import ProxyError

Tick = Callable[[str], None]

FILL_SECONDS = 3.0
"""Time that is given to a cache which did not have what was just sent: DeepSeek's takes some."""


class NotExamined(ProxyError):
    """There is nothing to examine; the message says what to do."""

    code = "not_examined"


@dataclass(slots=True)
class Visit:
    """`salt` names it: no two may have the same. `patient`: the cache is given time to fill."""

    door: Door
    dialect: Dialect
    salt: str
    tick: Tick
    patient: bool = False
    conversations: int = 0

    async def ask(self, name: str, body: dict[str, Any]) -> Answer:
        """Raises NotExamined where the key is refused."""
        self.tick(name)
        answer = await self.door.complete(body)
        if answer.status == 401:
            raise NotExamined(key_refused(self.door, answer.status))
        return answer

    def fresh_salt(self) -> str:
        """What the next conversation begins with."""
        self.conversations += 1
        return f"{self.salt}{self.conversations:02d}"

    async def let_it_fill(self) -> None:
        if self.patient:
            await self.door.nap(FILL_SECONDS)


def key_refused(door: Door, status: int) -> str:
    """What to do, without a word of the provider: some repeat the key."""
    if not door.key:
        return (
            f"{door.url} wants a key (status {status}): put it into an environment variable and "
            "name that: --key-env NAME"
        )
    return (
        f"{door.url} does not take this key (status {status}): is it this provider's, whole, and "
        "still valid? --key-env NAME names the variable that holds it"
    )
