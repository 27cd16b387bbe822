"""Judges one step: did it leave something that can be read again, and is an error visible in it?

The judgement is a reading, not a proof. It is built from tables (the names of tools that write, of
programs that write, of words by which failures are told) and a few rules about how they combine:

- A write counts only with a result, and only where that result does not show that it failed.
- A command line that failed may have written before it did: a heredoc counts although the test
  that is run after it fails.
- A step is in error when any of its results shows a failure, also when another call succeeded.
- Error words count in what a program printed, not in text that was merely read.

In doubt nothing was written and nothing failed, so that reasoning is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from proxy.core import calls, effects, shell, tools
from proxy.core.calls import Call, Result
from proxy.core.failure import EDGE, Kind, Outcome, outcome
from proxy.core.printed import complained, complaints
from proxy.core.tools import DEFAULT, Rules

__all__ = ["DEFAULT", "Judgement", "Rules", "judge"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """`why` names the rules that spoke (`tool:writefile`, `shell:redirect+exit_code`): no text."""

    wrote: bool
    errored: bool
    why: str


def judge(
    message: Mapping[str, Any], answers: Sequence[Mapping[str, Any]], rules: Rules = DEFAULT
) -> Judgement:
    """Judge an assistant message by the messages that answer it; never raises, whatever comes."""
    wrote = errored = ""
    room = shell.Room()
    for call, result in _answered(message, answers):
        one_wrote, one_errored = _judged(call, result, rules, room)
        wrote = wrote or one_wrote
        errored = errored or one_errored
    return Judgement(bool(wrote), bool(errored), "+".join(filter(None, (wrote, errored))))


MAX_RESULTS = 300_000
"""Characters that are read of the results of one step."""


def _answered(message: Mapping[str, Any], answers: Sequence[Any]) -> Iterator[tuple[Call, Result]]:
    """The calls that have a result, each with as much of it as is read."""
    done = [(one.call, one.result) for one in calls.done(message, answers) if one.result]
    limit = calls.share([len(result.text) for _, result in done], MAX_RESULTS)
    for call, result in done:
        yield call, replace(result, text=calls.ends(result.text, limit // 2))


def _judged(call: Call, result: Result, rules: Rules, room: shell.Room) -> tuple[str, str]:
    """The rule by which one call wrote, and the one by which it failed."""
    if tools.bare(call.name) in rules.never_writing_tools:
        kind = Kind.RUN if tools.runs(call) else Kind.TEXT
        return "", outcome(result, kind, extra=rules.error_patterns).rule
    command = tools.command(call, rules)
    if command:
        return _judged_shell(room.take(command), result, rules, room)
    code = tools.code(call, rules)
    if code:
        found = outcome(result, Kind.RUN, extra=rules.error_patterns)
        return "" if found.rule else _code_rule(room.take(code), rules, room), found.rule
    rule = tools.writes(call, rules, room)
    found = outcome(result, _kind(call, rule, rules), extra=rules.error_patterns)
    if found.rule or _NOTHING_DONE.search(found.output[:EDGE]):
        return "", found.rule
    return rule or ("tool:output" if _saved_as(call, rules, found.output) else ""), ""


_SAVED_AS = re.compile(
    r"(?i)[^\n]{0,200}?\b(?:saved|written|exported|downloaded)\b[^\n]{0,40}?\b(?:to|as|at|in)\b"
    r"[^\n]{0,200}?[\w-]\.[a-z]\w{1,4}\b"
)


def _saved_as(call: Call, rules: Rules, output: str) -> bool:
    """Whether a tool that was told of a place says first of all that it saved a file."""
    if tools.bare(call.name) in rules.reading_tools or _SAVED_AS.match(output[:EDGE]) is None:
        return False
    return tools.places(call)


_NOTHING_DONE = re.compile(
    r"(?i)\bno changes (?:were |was )?(?:made|needed|applied|necessary|to)\b"
    r"|\bdid not make any changes\b"
)


def _kind(call: Call, rule: str, rules: Rules) -> Kind:
    if rule:
        return Kind.WRITE
    if tools.answers(call.name):
        return Kind.TEXT
    name = tools.bare(call.name)
    if name in rules.reading_tools or name in rules.writing_tools or tools.shows(call.name):
        return Kind.READ
    return Kind.RUN if name in rules.code_tools or tools.runs(call) else Kind.OTHER


# --- program text -------------------------------------------------------------------------------

_FUNCTION = re.compile(r"(?<![.\w])([a-z]++(?:_[a-z]++)++)\(")
MAX_FUNCTIONS = 500
"""Function calls that are looked at in a program text."""


def _code_rule(code: str, rules: Rules, room: shell.Room) -> str:
    """The rule by which a program text writes: by itself, or by the agent's tools that it calls."""
    if effects.code_writes(code):
        return "code"
    for function in islice(_FUNCTION.finditer(code), MAX_FUNCTIONS):
        name = tools.bare(function[1])
        if name in rules.writing_tools:
            return "code:tool"
        text = effects.FIRST_TEXT.match(code, function.end()) if name in rules.shell_tools else None
        if text and _any_leaves(text[1], room):
            return "code:shell"
    return "code:shell" if any(_any_leaves(one, room) for one in effects.spawned(code)) else ""


def _any_leaves(command: str, room: shell.Room) -> bool:
    return any(map(effects.leaves, shell.commands(command, room)))


# --- commands -----------------------------------------------------------------------------------


def _judged_shell(command: str, result: Result, rules: Rules, room: shell.Room) -> tuple[str, str]:
    ran = [
        _Ran(one, effects.leaves(one), effects.plain(one), effects.harmless(one))
        for one in shell.commands(command, room)
    ]
    kind = Kind.PLAIN if all(one.plain for one in ran) else Kind.RUN
    programs = frozenset(one.simple.program for one in ran)
    found = outcome(result, kind, programs, rules.error_patterns)
    if found.refused:
        return "", found.rule
    if any(pattern.search(command) for pattern in rules.writing_patterns) and not found.rule:
        return "shell:pattern", ""
    return _left(ran, found, _Told(found.output, programs)), found.rule


@dataclass(frozen=True, slots=True)
class _Ran:
    """A command, and what the tables say of it: each of them is asked once."""

    simple: shell.Simple
    rule: str
    plain: bool
    harmless: bool


class _Told:
    """What an output says of the commands that were run: each question is asked once."""

    def __init__(self, output: str, programs: frozenset[str]) -> None:
        self._output = output
        self._programs = programs

    @cached_property
    def changed(self) -> bool:
        return _CHANGED.search(self._output) is not None

    @cached_property
    def unchanged(self) -> bool:
        if _UNCHANGED.search(self._output) is None or self.changed:
            return False
        return _REWRITTEN.search(self._output) is None

    @cached_property
    def tagged(self) -> bool:
        return _TAG.search(self._output) is not None

    def nothing_new(self, verb: str) -> bool:
        pattern = _NOTHING_NEW.get(verb)
        return pattern is not None and pattern.search(self._output) is not None

    @cached_property
    def own_trace(self) -> bool:
        return _OWN_TRACE.search(self._output) is not None

    @cached_property
    def saved(self) -> bool:
        return any(pattern.search(self._output) for pattern in (_SAVED, _DONE))

    @cached_property
    def complaints(self) -> tuple[tuple[str, str], ...]:
        return complaints(self._output, self._programs)


def _left(ran: Sequence[_Ran], found: Outcome, told: _Told) -> str:
    """The rule of the first write of a command line that the result does not speak against."""
    writes = [i for i, one in enumerate(ran) if one.rule and one.simple.link != "||"]
    done = [i for i in writes if not _unchanged(ran[i].rule, told)]
    if found.rule:
        line = _line(ran)
        done = [
            i for i in done if not _refused(i, ran, line, told) and _outlived(i, ran, line, found)
        ]
    if done:
        return f"shell:{ran[done[0]].rule}"
    credible = not found.rule or told.changed
    return "shell:output" if credible and any(_claims(one, told) for one in ran) else ""


_UNCHANGED = re.compile(
    r"(?im)no fixes applied|\bno fixable\b|\bleft unchanged|already formatted|\(unchanged\)$"
    r"|\b0 files? (?:reformatted|changed)|^all checks passed!|^found \d+ errors?\.$"
    r"|^no changes detected"
)
# A file that prettier names without a remark is one that it wrote.
_REWRITTEN = re.compile(r"^\S{1,200} \d+ms$", re.M)
_NO_COMMIT = re.compile(r"(?i)nothing to commit|nothing added to commit|no changes added")
_UP_TO_DATE = re.compile(r"(?i)already up[ -]to[ -]date|\bis up to date\.$")
_NOTHING_NEW: Mapping[str, re.Pattern[str]] = {
    **dict.fromkeys(("add", "commit", "am"), _NO_COMMIT),
    **dict.fromkeys(("pull", "merge", "rebase"), _UP_TO_DATE),
    "stash": re.compile(r"(?i)no local changes to save"),
    "checkout": re.compile(
        r"(?ims)\A(?!.*(?:\bto a new branch|^updated \d)).*?"
        r"^(?:switched to branch|note: switching to|already on) "
    ),
}
# What a database's own client says of a statement that was carried out.
_TAG = re.compile(
    r"^(?:INSERT \d+ [1-9]|(?:UPDATE|DELETE|COPY) [1-9]|(?:CREATE|ALTER|DROP) [A-Z]{4,20}$"
    r"|Query OK, [1-9])",
    re.M,
)
_CHANGED = re.compile(
    r"(?im)\b(?:fixed|formatted|reformatted) [1-9]\d* files?\b|\b[1-9]\d* files? reformatted\b"
    r"|^reformatted \S|\bpersisting changes\b|files were modified by this hook"
    r"|\b[1-9]\d* snapshots? (?:written|updated)\b"
)
_OWN_TRACE = re.compile(r'File "<(?:stdin|string)>"|^\[(?:eval|stdin)', re.M)


def _unchanged(rule: str, told: _Told) -> bool:
    """Whether the output says that this write changed nothing."""
    kind, _, name = rule.partition(":")
    return told.unchanged if kind == "format" else kind == "git" and told.nothing_new(name)


@dataclass(frozen=True, slots=True)
class _Line:
    """Where the commands of a line stand to each other, as indexes; `len` where there is none."""

    starts: Sequence[int]
    """For each the first of those that are joined to it by `&&`; -1 where one may have failed."""
    last: Mapping[str, int]
    """Where each program is run last."""
    last_fallible: int
    """The last command that may fail, and whose failure is not hidden by a pipe; else -1."""
    first_program: int
    """The first command that is not plain."""


def _line(ran: Sequence[_Ran]) -> _Line:
    starts: list[int] = []
    for i, one in enumerate(ran):
        before = ran[i - 1]
        joined = i > 0 and one.simple.link == "&&"
        safe = not joined or before.harmless or bool(before.rule)
        starts.append((starts[-1] if safe else -1) if joined else i)
    fallible = [
        i for i, one in enumerate(ran) if not one.harmless and one.simple.link not in ("|", "|&")
    ]
    return _Line(
        starts,
        {one.simple.program: i for i, one in enumerate(ran)},
        max(fallible, default=-1),
        next((i for i, one in enumerate(ran) if not one.plain), len(ran)),
    )


def _refused(at: int, ran: Sequence[_Ran], line: _Line, told: _Told) -> bool:
    """Whether the output of a command line that failed blames this command."""
    one = ran[at].simple
    if effects.inline(one) and told.own_trace:
        return True
    # What a program that ran says of itself is not said of the file that its output goes to.
    speaker = "" if ran[at].rule == "redirect" and not ran[at].plain else one.program
    return line.last[one.program] == at and complained(told.complaints, speaker, one.targets)


def _outlived(at: int, ran: Sequence[_Ran], line: _Line, found: Outcome) -> bool:
    """Whether a write of a command line that failed was done all the same.

    It was where the line as a whole succeeded. Else what is joined to it by `&&` must be harmless,
    and something that may have failed must stand after it, or before it without `&&`. The output
    of a program that failed is there where it was redirected.
    """
    if found.code == 0:
        return True
    one, start = ran[at], line.starts[at]
    if start < 0:
        return False
    if one.rule == "redirect" and not one.plain or one.simple.program == "tee":
        return True
    if found.code is None and line.first_program < start:
        return True
    return line.last_fallible > at


# --- what programs say that they left -----------------------------------------------------------

_REWRITER = re.compile(
    r"(?i)(?:\A|[_\W])(?:apply|fix|patch|update|rewrite|replace|modify|edit|refactor|migrate|convert"
    r"|insert|codemod|transform|change|add|remove|write|create|generate)(?:[_\W\d]|\Z)"
)
_TRIAL = re.compile(r"(?i)test|check|verif|repro|debug|demo|example|validate")
_DRY = frozenset({"--check", "--dry-run", "--help", "-h"})
_SAVED = re.compile(
    r"(?i)\b(?:saved|wrote|written|exported|generated|created|updated|modified|patched|fixed|rewrote)"
    r"\b[^\n]{0,80}?[\w-]\.(?:py|js|jsx|ts|tsx|json|jsonl|csv|tsv|txt|md|rst|html|css|pdf|png|jpe?g"
    r"|svg|gif|xlsx|docx|pptx|xml|ya?ml|toml|ini|parquet|log|zip|db|sqlite|sql|sh|c|h|cpp|go|rs|java"
    r"|rb|kt|swift|php|vue|tex|ipynb|diff|patch|npz|npy|pkl|pth?|ckpt|onnx|safetensors|h5|joblib"
    r"|geojson|feather|tgz|gz|mp[34]|wav|webp)\b"
)
_DONE = re.compile(
    r"(?im)^\W{0,3}(?:(?:the )?files? (?:has been |have been |was |were )?(?:successfully )?"
    r"(?:updated|modified|patched|written|saved|rewritten|replaced)"
    r"|(?:changes|fix(?:es)?|patch(?:es)?|edits?) (?:applied|written|saved)"
    r"|(?:successfully )?(?:updated|modified|patched|wrote|saved|rewrote) (?:the )?files?\b)"
)


def _claims(one: _Ran, told: _Told) -> bool:
    """Whether a program that ran says, or by its name promises, that it changed files."""
    if one.plain or told.changed:
        return not one.plain
    if one.simple.program in effects.CLIENTS:
        return told.tagged
    script = effects.script(one.simple).replace("\\", "/").rpartition("/")[2]
    if not script or _TRIAL.search(script) or _DRY.intersection(one.simple.words):
        return False
    return _REWRITER.search(script) is not None or told.saved
