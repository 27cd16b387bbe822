"""An upstream that holds to its contract over real sockets: it refuses what breaks it, renders what
it takes, reports what its cache served, and gives the next step of a script.

    strict = Strict(FAMILIES["kimi-k2"], task())
    async with providing(strict) as provider: ...       # provider.url; strict.talk(caller).served

Conversations are told apart by the credential. The n-th request that is taken gets the n-th step; a
refused one uses up none. Unknown members of a request are taken as they come.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from tests.contracts import caching, seals
from tests.contracts.families import Family
from tests.contracts.refusals import Refusal, openai_error
from tests.contracts.rendering import Call, Prompt, Request, rendered
from tests.contracts.replies import Count, Reply, Step, answer_of, continued
from tests.journey.provider import Answer, Came


@dataclass(frozen=True, slots=True)
class Served:
    """One request that was taken: its prompt, what was generated behind it, and the tokens."""

    request: Request
    prompt: Prompt
    generated: str
    reply: Reply
    tokens: Count


@dataclass(slots=True)
class Talk:
    """What one caller was given and gave."""

    caller: str
    script: Sequence[Step]
    served: list[Served] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    held: list[caching.Pieces] = field(default_factory=list)
    given: int = 0
    numbers: count[int] = field(default_factory=count)


class Strict:
    """The server's script (`tests.journey.provider`). Beyond its end a script's last step is given
    again. `play` sets another script for one caller.
    """

    def __init__(self, family: Family, script: Sequence[Step]) -> None:
        self.family = family
        self.script = script
        self._talks: dict[str, Talk] = {}

    def play(self, caller: str, script: Sequence[Step]) -> None:
        self._talks[caller] = Talk(caller, script)

    @property
    def callers(self) -> int:
        return len(self._talks)

    def talk(self, caller: str) -> Talk:
        return self._talks.setdefault(caller, Talk(caller, self.script))

    def __call__(self, came: Came) -> Answer:
        if not came.path.endswith("/chat/completions"):
            return self._listed(came)
        talk = self.talk(came.headers.get("authorization", "").removeprefix("Bearer "))
        request = json.loads(came.body)
        refusal = self.family.refusal(request)
        if refusal is not None:
            talk.refused.append(refusal)
            return Answer(refusal.status, chunks=(refusal.body,))
        step = talk.script[min(talk.given, len(talk.script) - 1)]
        talk.given += 1
        if step.status != 200:
            failed = openai_error("scripted failure", step.status)
            return Answer(step.status, chunks=(failed.body,))
        served = self._serve(talk, request, self._reply(talk, step, request))
        talk.served.append(served)
        return answer_of(self.family, served.reply, served.tokens, request)

    def _listed(self, came: Came) -> Answer:
        """The models, where they are asked for; all other paths are unknown."""
        if not came.path.endswith("/models"):
            return Answer(404, chunks=(openai_error("unknown path", 404).body,))
        model = {"id": self.family.model, "object": "model", "owned_by": self.family.name}
        return Answer(chunks=(json.dumps({"object": "list", "data": [model]}).encode(),))

    def _reply(self, talk: Talk, step: Step, request: Request) -> Reply:
        calls = tuple(self._identified(talk, call) for call in step.calls)
        step = Step(step.reasoning, step.text, calls)
        sealing = self.family.sealing
        items = sealing(step.reasoning, seals.chain_of(request)) if sealing else ()
        return Reply(step, talk.given, tuple(items))

    def _identified(self, talk: Talk, call: Call) -> Call:
        call_id, name, arguments = call
        if call_id:
            return call
        number = next(talk.numbers)
        plain = f"call_{talk.caller}_{number}"
        return (f"functions.{name}:{number}" if self.family.kimi_ids else plain, name, arguments)

    def _serve(self, talk: Talk, request: Request, reply: Reply) -> Served:
        family = self.family
        prompt = rendered(family.template, family.reads, request)
        text = prompt.text
        generated = continued(family, reply, prompt)
        cut = caching.pieces(text)
        tokens = Count(
            caching.tokens(cut),
            caching.read(family.cache, talk.held, cut),
            caching.tokens(caching.pieces(generated)),
            caching.tokens(caching.pieces(reply.step.reasoning)),
        )
        talk.held.append(caching.held(family.cache, text, generated))
        return Served(request, prompt, generated, reply, tokens)
