"""The task of the scripted agent: tickets in an imagined repository, ten steps each.

Look, read, read, reproduce, edit, test, read, edit, test, commit: half of the steps leave something
durable or an error that can be seen. The texts are put together by a seeded generator. Sizes are
those of such agents: some 1,200 tokens of thought a step, a tool result of up to 2,000, a prompt of
8,000 to begin with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import Any

import orjson

from proxy.replay.scripted_wire import Answer, Call, tokens_of


@dataclass(frozen=True, slots=True)
class Step:
    """One answer of the model, and what its tool call brings."""

    answer: Answer
    observation: str


@dataclass(frozen=True, slots=True)
class Task:
    """What the agent is asked to do, and how it goes. `farewell` is an answer without a call."""

    system: str
    tools: tuple[Mapping[str, Any], ...]
    goal: str
    steps: tuple[Step, ...]
    farewell: Answer

    @property
    def script(self) -> tuple[Answer, ...]:
        return (*(step.answer for step in self.steps), self.farewell)


def coding_task(steps: int, seed: int) -> Task:
    """The task with so many steps; the same seed gives the same task."""
    pen = _Pen(Random(seed))
    return Task(
        system=f"{_SYSTEM}\n\n{pen.prose(_RULES, 5000)}",
        tools=tuple(_tool(pen, *row) for row in _TOOLS),
        goal="The tickets below are open. Fix one after the other, with tests, one commit each.\n"
        + "\n".join(f"- {line}" for line in pen.lines(_TICKETS, 6)),
        steps=tuple(islice(_story(pen), steps)),
        farewell=Answer(pen.prose(_THOUGHTS, 300), "All tickets are done; each has its commit."),
    )


def _story(pen: _Pen) -> Iterator[Step]:
    number = count(1)
    while True:
        pen.next_ticket()
        for scene in _SCENES:
            name, arguments, observation = scene(pen)
            call = Call(f"call_{next(number):04}", name, orjson.dumps(arguments).decode())
            thought = pen.prose(_THOUGHTS, pen.random.triangular(300, 2600, 900))
            yield Step(Answer(thought, pen.line(_REMARKS), (call,)), observation)


class _Pen:
    """Writes texts of a wanted size (in tokens) about the ticket at hand."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.next_ticket()

    def next_ticket(self) -> None:
        names = self.random.sample(_MODULES, 2)
        verbs = self.random.sample(_VERBS, 2)
        nouns = self.random.sample(_NOUNS, 2)
        self.words = {
            "m": names[0], "n": names[1], "noun": nouns[0], "other": nouns[1],
            "f": f"{verbs[0]}_{nouns[0]}", "g": f"{verbs[1]}_{nouns[1]}",
        }  # fmt: skip

    def line(self, forms: tuple[str, ...]) -> str:
        return self.random.choice(forms).format(**self.words, k=self.random.randint(2, 480))

    def lines(self, forms: tuple[str, ...], number: int) -> list[str]:
        return [self.line(forms) for _ in range(number)]

    def prose(self, forms: tuple[str, ...], tokens: float, gap: str = " ") -> str:
        """Lines in a new order each time, until so many tokens are reached."""
        forms = tuple(self.random.sample(forms, len(forms)))
        lines: list[str] = []
        left = tokens
        while left > 0:
            form = forms[len(lines) % len(forms)]
            lines.append(self.line((form,)))
            left -= tokens_of(lines[-1] + gap)
        return gap.join(lines)

    def code(self, low: int, high: int) -> str:
        return self.prose(_CODE, self.random.uniform(low, high), "\n")


# Scenes: the tool, its arguments, what it answers

Scene = Callable[[_Pen], tuple[str, dict[str, Any], str]]


def _look(pen: _Pen) -> tuple[str, dict[str, Any], str]:
    command = pen.line(
        ("rg -n '{f}' src tests", "ls -R src tests", "rg -n 'def |class ' src/{m}.py")
    )
    return "bash", {"command": command}, pen.prose(_HITS, pen.random.uniform(200, 900), "\n")


def _read(pen: _Pen) -> tuple[str, dict[str, Any], str]:
    return "read_file", {"path": pen.line(("src/{m}.py",))}, pen.code(600, 2000)


def _read_test(pen: _Pen) -> tuple[str, dict[str, Any], str]:
    return "read_file", {"path": pen.line(("tests/test_{m}.py",))}, pen.code(400, 1500)


def _read_other(pen: _Pen) -> tuple[str, dict[str, Any], str]:
    return "read_file", {"path": pen.line(("src/{n}.py",))}, pen.code(400, 1800)


def _fail(pen: _Pen) -> tuple[str, dict[str, Any], str]:
    said = pen.line(
        (
            "tests/test_{m}.py F\n\nE       AssertionError: assert {k} == {f}({noun})\n\n"
            "FAILED tests/test_{m}.py::test_{f} - AssertionError\n1 failed, {k} passed in 1.32s",
        )
    )
    shown = pen.code(150, 600)
    return "bash", _pytest(pen), f"{shown}\n{said}\n\n[exit code: 1]"


def _pass(pen: _Pen) -> tuple[str, dict[str, Any], str]:
    return "bash", _pytest(pen), pen.line(("tests/test_{m}.py ....\n\n{k} passed in 1.07s",))


def _pytest(pen: _Pen) -> dict[str, Any]:
    return {"command": pen.line(("python -m pytest -q tests/test_{m}.py",))}


def _edit(pen: _Pen) -> tuple[str, dict[str, Any], str]:
    path = pen.line(("src/{m}.py", "src/{n}.py"))
    arguments = {"path": path, "old_string": pen.code(30, 120), "new_string": pen.code(60, 300)}
    return "edit_file", arguments, f"The file {path} was edited."


def _commit(pen: _Pen) -> tuple[str, dict[str, Any], str]:
    title = pen.line(("Let {f} keep the {noun} whole", "Hand the {other} to {g} as it came"))
    said = pen.line((f"[main 5f0c{{k:03x}}] {title}\n 2 files changed, {{k}} insertions(+)",))
    return "bash", {"command": f"git add -A && git commit -m '{title}'"}, said


_SCENES: tuple[Scene, ...] = (
    _look, _read, _read_test, _fail, _edit, _fail, _read_other, _edit, _pass, _commit,
)  # fmt: skip


# Words

_MODULES = (
    "tariff",
    "calendar",
    "rounding",
    "importer",
    "statement",
    "invoice",
    "booking",
    "rates",
)
_VERBS = ("parse", "merge", "round", "split", "collect", "resolve", "render", "match")
_NOUNS = ("period", "payment", "header", "discount", "currency", "balance", "contract", "surplus")

_SYSTEM = (
    "You are a careful software engineer at work in a repository of your user. Use the tools to "
    "look, change and test. Say in a sentence what you are about to do, then do it."
)
_RULES = (
    "Read a file before you change it, and change no more of it than the ticket asks for.",
    "A bug first gets a test that fails; then the code; then the whole file of tests runs again.",
    "Keep functions short, and name things by the words that {m}.py and {n}.py already use.",
    "Money is decimal everywhere; a float in {f} or {g} is a mistake, wherever it came from.",
    "Commit when a ticket is done, with a title in the imperative and nothing unrelated in it.",
    "Where a {noun} may be missing, say so in the type; do not hide it behind an empty {other}.",
    "Do not touch generated files, the vendored folder or the lock file unless a ticket says so.",
    "If a command fails, read its output to the end before you try anything else.",
)
_TICKETS = (
    "{f} loses the last {noun} when there are more than {k}.",
    "{g} reads the {other} twice where {m}.py hands it an iterator.",
    "A {noun} of exactly {k} is rounded down in {m}.py and up in {n}.py.",
    "{f} accepts a {noun} without {other} and fails much later, in {n}.py.",
)
_THOUGHTS = (
    "The ticket names {f}, so I look at {m}.py first, and then at whoever calls it from {n}.py.",
    "{f} takes the {noun} as it was read and hands it to {g}, which wants it normalised.",
    "If I change {f} alone, {g} still sees the old form, and the second assertion fails.",
    "What happens at the edges: no {noun} at all, a single one, and two that are equal?",
    "With {k} entries the loop runs once too often, unless the {other} was taken out before.",
    "Hm, wait: the {other} is compared by identity there, so a copy of it would never be found.",
    "One way is to sort by {noun} first, but then the order that the statement promises is gone.",
    "The other way is to carry the {other} along; that touches {k} lines, but no caller.",
    "I could also leave {g} as it is and mend the {noun} where it enters; {n}.py must agree.",
    "The test expects {k}, and by hand I get {k} as well: the sum is right, the rounding not.",
    "Let me go through it once more: {f} is called, the {noun} is split, each half goes to {g}.",
    "That cannot be all, since the failing case has no {other}, and never gets here.",
    "So the plan is: a test for the {noun} that is missing, then the guard in {f}, then line {k}.",
    "Before I edit I want to see how {n}.py builds its {other}; it may rely on the order.",
    "The caller catches the error and goes on, so nobody saw it until the {noun} was negative.",
    "It would be cleaner to have one function for both, but the ticket does not ask for it.",
)
_REMARKS = (
    "I will look at how {f} is used.",
    "Next: {m}.py and its tests.",
    "Let me see what the {noun} looks like there.",
    "I change {f} so that the {other} stays with it.",
    "Running the tests of {m}.",
)
_CODE = (
    "def {f}({noun}: str, {other}: Decimal) -> Decimal:",
    "    rows = [row for row in {g}({noun}) if row.{other} is not None]",
    "    if len(rows) > {k}:",
    "        raise ValueError(f'too many: {{len(rows)}}')",
    "    return sum((row.{other} for row in rows), Decimal(0))",
    "",
    "def test_{f}_keeps_the_{noun}():",
    "    assert {k} == {f}(a_{noun}(), {other}=Decimal('{k}.50'))",
    "    # The {other} is settled by the caller, see {n}.py.",
    "class {noun}Table(Table):",
    "    {noun} = Column(Decimal, nullable=False)",
)
_HITS = (
    "src/{m}.py:{k}:def {f}({noun}, {other}):",
    "src/{n}.py:{k}:    return {f}(row.{noun}, row.{other})",
    "tests/test_{m}.py:{k}:def test_{f}_with_{other}():",
    "src/{n}.py:{k}:from {m} import {f}, {g}",
)
_TOOLS = (
    ("bash", "Run a command in the repository and show what it prints.", ("command",)),
    ("read_file", "Show a file, or some of its lines.", ("path",)),
    ("edit_file", "Put one text into the place of another.", ("path", "old_string", "new_string")),
    ("write_file", "Create a file, or write it anew.", ("path", "content")),
    ("search", "Find a pattern in the files of the repository.", ("pattern", "path")),
)


def _tool(pen: _Pen, name: str, about: str, given: tuple[str, ...]) -> dict[str, Any]:
    properties = {name: {"type": "string", "description": pen.prose(_RULES, 60)} for name in given}
    described = f"{about} {pen.prose(_RULES, 400)}"
    parameters = {"type": "object", "properties": properties, "required": list(given)}
    function = {"name": name, "description": described, "parameters": parameters}
    return {"type": "function", "function": function}
