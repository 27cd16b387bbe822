"""Agent conversations that grow by one step a request: real in shape and size, made of chance.

A conversation is a system prompt, a task, and steps: an assistant message with reasoning and one
tool call, then the tool's result. Requests walk a window around the nominal size, from half the
steps to one and a half times as many; then another conversation begins. No two connections share a
text, and one that begins anew has another task and other call ids: nothing of it was ever seen.

Texts are picked from pools of JSON fragments that are encoded already, so sizes are exact and
making megabytes takes no time.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

MODEL = "bench-1"


@dataclass(frozen=True, slots=True)
class Size:
    """A nominal request: its bytes, its steps (two messages each), what stands around the steps."""

    name: str
    bytes: int
    steps: int
    system: int
    task: int
    tools: int

    @property
    def messages(self) -> int:
        return 2 + 2 * self.steps

    @property
    def step(self) -> int:
        """Bytes of one step."""
        return (self.bytes - self.system - self.task - self.tools) // self.steps

    @property
    def window(self) -> range:
        """How many steps the requests of one conversation have, one after the other."""
        return range(self.steps // 2, self.steps + (self.steps + 1) // 2 + 1)


SIZES = (
    Size("2 KB", 2_000, 1, system=300, task=200, tools=300),
    Size("100 KB", 100_000, 29, system=3_000, task=1_000, tools=4_000),
    Size("1 MB", 1_000_000, 199, system=8_000, task=2_000, tools=8_000),
)

_EPOCH = b"@epoch@@"
"""Stands where a conversation's number goes; as long as the number, so that offsets stay."""
_REASONING, _SAID, _ARGUMENTS = 0.40, 0.04, 0.14
"""Shares of a step's bytes; the tool's result is the rest."""


@dataclass(frozen=True, slots=True)
class Pools:
    """Fragments of JSON string literals: prose, lines of a terminal, the same once more encoded."""

    prose: Sequence[bytes]
    lines: Sequence[bytes]
    nested: Sequence[bytes]


def pools(seed: int, many: int = 1500) -> Pools:
    chance = random.Random(seed)
    words = [
        "".join(chance.choices("etaoinshrdlucmfw", k=chance.randint(2, 9))) for _ in range(900)
    ]
    prose = [_sentence(chance, words) for _ in range(many)]
    lines = [_line(chance, words) for _ in range(many)]
    once = [_inside(line) for line in lines]
    return Pools([_inside(text) for text in prose], once, [_inside(o.decode()) for o in once])


def _inside(text: str) -> bytes:
    """The inside of the text's JSON literal, as today's clients write it (UTF-8, not escaped)."""
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


def _sentence(chance: random.Random, words: list[str]) -> str:
    text = " ".join(chance.choices(words, k=chance.randint(6, 22))).capitalize()
    return text + chance.choice([". ", ". ", ".\n\n", " – so: ", '; `x` is "set". '])


def _line(chance: random.Random, words: list[str]) -> str:
    name, other = chance.choices(words, k=2)
    return "    " * chance.randint(0, 3) + chance.choice(
        [
            f"def {name}({other}):\n",
            f'{name} = {other}["{other}"]\n',
            f"{chance.randint(1, 999)}: {name}/{other}.py\n",
            f"return {name}  # {' '.join(chance.choices(words, k=6))} ✓\n",
            f"\t{' '.join(chance.choices(words, k=9))}\n",
            "\n",
        ]
    )


class Conversation:
    """The requests of one connection, for ever. `number` tells connections apart.

    `phase`, from 0 to 1, is where in the window it begins.
    """

    def __init__(self, size: Size, pools: Pools, number: int, phase: float, tail: bytes) -> None:
        """`tail` holds the members after `tools`: `,"stream":true`."""
        chance = random.Random(number)
        self._size = size
        self._number, self._epoch = number, 0
        self._model, self._ends = _written(size, pools, chance)
        tools = _literal(chance, pools.prose, size.tools - 140)
        self._tail = _TAIL % (tools, tail)
        self._text = b""
        self._at = int(phase * (len(size.window) - 1))
        self._begin()

    def _begin(self) -> None:
        self._epoch += 1
        self._text = self._model.replace(_EPOCH, b"%04x%04x" % (self._number, self._epoch))

    @property
    def fresh(self) -> bool:
        """Whether the next request is the first of its conversation."""
        return self._at == 0

    def next(self) -> tuple[memoryview, bytes]:
        """The next request's body, in two parts."""
        if self._at == len(self._size.window):
            self._at = 0
            self._begin()
        end = self._ends[self._size.window[self._at]]
        self._at += 1
        return memoryview(self._text)[:end], self._tail


_HEAD = b'{"model":"%b","messages":[' % MODEL.encode()
_TAIL = (
    b'],"tools":[{"type":"function","function":{"name":"bash","description":%b,'
    b'"parameters":{"type":"object","properties":{"command":{"type":"string"}}}}}]%b}'
)
_ASSISTANT = (
    b'{"role":"assistant","content":%b,"reasoning_content":%b,"tool_calls":[{"id":"%b","type":"function",'
    b'"function":{"name":"bash","arguments":"{\\"command\\": \\"%b\\"}"}}]}'
)
_RESULT = b'{"role":"tool","tool_call_id":"%b","content":%b}'
_AROUND = len(_ASSISTANT) + len(_RESULT) + 2 * len(b"call_@epoch@@0000") - 10


def _written(size: Size, pools: Pools, chance: random.Random) -> tuple[bytes, list[int]]:
    """The longest conversation of the window, and where it ends after so many steps."""
    parts = [
        _HEAD,
        b'{"role":"system","content":%b},' % _literal(chance, pools.prose, size.system - 40),
    ]
    task = _literal(chance, pools.prose, size.task - 40 - len(_EPOCH))
    parts.append(b'{"role":"user","content":"%b %b}' % (_EPOCH, task[1:]))
    ends = [sum(map(len, parts))]
    for number in range(size.window[-1]):
        step = b"," + _step(size.step, pools, chance, b"call_%b%04x" % (_EPOCH, number))
        parts.append(step)
        ends.append(ends[-1] + len(step))
    return b"".join(parts), ends


def _step(room: int, pools: Pools, chance: random.Random, call: bytes) -> bytes:
    room = max(room - _AROUND, 0)
    said = _literal(chance, pools.prose, int(room * _SAID))
    thought = _literal(chance, pools.prose, int(room * _REASONING))
    command = _text(chance, pools.nested, int(room * _ARGUMENTS))
    spent = len(said) + len(thought) + len(command)
    result = _literal(chance, pools.lines, room - spent)
    return _ASSISTANT % (said, thought, call, command) + b"," + _RESULT % (call, result)


def _literal(chance: random.Random, pool: Sequence[bytes], length: int) -> bytes:
    return b'"' + _text(chance, pool, length - 2) + b'"'


def _text(chance: random.Random, pool: Sequence[bytes], length: int) -> bytes:
    """Fragments up to the length, then letters: a fragment is not cut, it may end in an escape."""
    found: list[bytes] = []
    pick: Callable[[], float] = chance.random
    while length > 0:
        piece = pool[int(pick() * len(pool))]
        if len(piece) > length:
            piece = bytes(chance.choices(b"abcdefghij klmnop", k=length))
        found.append(piece)
        length -= len(piece)
    return b"".join(found)
