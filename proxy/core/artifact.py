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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from proxy.core import calls, effects, shell, tools
from proxy.core.calls import Call, Result
from proxy.core.failure import EDGE, Kind, Outcome, outcome
from proxy.core.printed import complained
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
    for done in calls.done(message, answers):
        if done.result is None:
            continue
        one_wrote, one_errored = _judged(done.call, done.result, rules)
        wrote = wrote or one_wrote
        errored = errored or one_errored
    return Judgement(bool(wrote), bool(errored), "+".join(filter(None, (wrote, errored))))


def _judged(call: Call, result: Result, rules: Rules) -> tuple[str, str]:
    """The rule by which one call wrote, and the one by which it failed."""
    if tools.bare(call.name) in rules.never_writing_tools:
        return "", outcome(result, Kind.OTHER, extra=rules.error_patterns).rule
    command = tools.command(call, rules)
    if command:
        return _judged_shell(command, result, rules)
    code = tools.code(call, rules)
    if code:
        found = outcome(result, Kind.RUN, extra=rules.error_patterns)
        return "" if found.rule else _code_rule(code, rules), found.rule
    rule = tools.writes(call, rules)
    found = outcome(result, _kind(call, rule, rules), extra=rules.error_patterns)
    idle = _NOTHING_DONE.search(found.output[:EDGE]) is not None
    return "" if found.rule or idle else rule, found.rule


_NOTHING_DONE = re.compile(
    r"(?i)\bno changes (?:were |was )?(?:made|needed|applied|necessary|to)\b"
)


def _kind(call: Call, rule: str, rules: Rules) -> Kind:
    if rule:
        return Kind.WRITE
    name = tools.bare(call.name)
    if name in rules.reading_tools or name in rules.writing_tools:
        return Kind.READ
    return Kind.RUN if tools.runs(call) else Kind.OTHER


# --- program text -------------------------------------------------------------------------------

_FUNCTION = re.compile(r"(?<![.\w])([a-z]+(?:_[a-z]+)+)\(")
_FIRST_TEXT = re.compile(
    r"""\s{0,40}(?:\w{1,20}\s?=\s?)?[rf]?(?:\"{3}|'{3}|"|')([^\n]{0,2000}?)(?:\"{3}|'{3}|"|')"""
)
MAX_FUNCTIONS = 500
"""Function calls that are looked at in a program text."""


def _code_rule(code: str, rules: Rules) -> str:
    """The rule by which a program text writes: by itself, or by the agent's tools that it calls."""
    if effects.code_writes(code):
        return "code"
    for function in islice(_FUNCTION.finditer(code[: shell.MAX_TEXT]), MAX_FUNCTIONS):
        name = tools.bare(function[1])
        if name in rules.writing_tools:
            return "code:tool"
        command = _FIRST_TEXT.match(code, function.end()) if name in rules.shell_tools else None
        if command and any(map(effects.leaves, shell.commands(command[1]))):
            return "code:shell"
    return ""


# --- commands -----------------------------------------------------------------------------------


def _judged_shell(command: str, result: Result, rules: Rules) -> tuple[str, str]:
    ran = shell.commands(command)
    kind = Kind.PLAIN if all(effects.plain(one) for one in ran) else Kind.RUN
    programs = frozenset(one.program for one in ran)
    found = outcome(result, kind, programs, rules.error_patterns)
    if found.refused:
        return "", found.rule
    if any(pattern.search(command) for pattern in rules.writing_patterns) and not found.rule:
        return "shell:pattern", ""
    return _left(ran, found), found.rule


def _left(ran: Sequence[shell.Simple], found: Outcome) -> str:
    """The rule of the first write of a command line that the result does not speak against."""
    for i, one in enumerate(ran):
        rule = effects.leaves(one)
        if not rule or one.link == "||" or _unchanged(rule, found.output):
            continue
        if not found.rule or (
            not _refused(one, ran[i + 1 :], found) and _outlived(rule, i, ran, found)
        ):
            return f"shell:{rule}"
    if not found.rule and any(_claims(one, found.output) for one in ran):
        return "shell:output"
    return ""


_UNCHANGED = re.compile(
    r"(?i)no fixes applied|\bno fixable\b|\bleft unchanged|already formatted"
    r"|\b0 files? (?:reformatted|changed)"
)
_NOTHING_NEW = re.compile(
    r"(?i)nothing to commit|nothing added to commit|no changes added|already up[ -]to[ -]date"
    r"|no local changes to save|everything up-to-date"
)
_CHANGED = re.compile(
    r"(?im)\b(?:fixed|formatted|reformatted) [1-9]\d* files?\b|\b[1-9]\d* files? reformatted\b"
    r"|^reformatted \S|\bpersisting changes\b|files were modified by this hook"
    r"|\b[1-9]\d* snapshots? (?:written|updated)\b"
)
_OWN_TRACE = re.compile(r'File "<(?:stdin|string)>"|^\[(?:eval|stdin)', re.M)


def _unchanged(rule: str, output: str) -> bool:
    """Whether the output says that this write changed nothing."""
    kind = rule.partition(":")[0]
    if kind == "format":
        return _UNCHANGED.search(output) is not None and _CHANGED.search(output) is None
    return kind == "git" and _NOTHING_NEW.search(output) is not None


def _refused(one: shell.Simple, later: Sequence[shell.Simple], found: Outcome) -> bool:
    """Whether the output of a command line that failed blames this command."""
    if effects.inline(one) and _OWN_TRACE.search(found.output):
        return True
    if any(other.program == one.program for other in later):
        return False
    return complained(found.output, one.program, one.targets)


def _outlived(rule: str, at: int, ran: Sequence[shell.Simple], found: Outcome) -> bool:
    """Whether a write of a command line that failed was done all the same.

    It was where the line as a whole succeeded. Else what is joined to it by `&&` must be harmless,
    and something that may have failed must stand after it, or before it without `&&`. The output
    of a program that failed is there where it was redirected.
    """
    if found.code == 0:
        return True
    start = at
    while start and ran[start].link == "&&":
        start -= 1
        if not effects.harmless(ran[start]) and not effects.leaves(ran[start]):
            return False
    if rule == "redirect" and not effects.plain(ran[at]) or ran[at].program == "tee":
        return True
    if found.code is None and not all(map(effects.plain, ran[:start])):
        return True
    return any(
        not effects.harmless(later) and later.link not in ("|", "|&") for later in ran[at + 1 :]
    )


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
    r"|svg|gif|xlsx|docx|pptx|xml|ya?ml|toml|ini|parquet|log|zip|db|sqlite|sql|sh|c|h|cpp|go|rs|java|rb)\b"
)
_DONE = re.compile(
    r"(?im)^\W{0,3}(?:(?:the )?files? (?:has been |have been |was |were )?(?:successfully )?"
    r"(?:updated|modified|patched|written|saved|rewritten|replaced)"
    r"|(?:changes|fix(?:es)?|patch(?:es)?|edits?) (?:applied|written|saved)"
    r"|(?:successfully )?(?:updated|modified|patched|wrote|saved|rewrote) (?:the )?files?\b)"
)


def _claims(one: shell.Simple, output: str) -> bool:
    """Whether a program that ran says, or by its name promises, that it changed files."""
    if effects.plain(one):
        return False
    if _CHANGED.search(output):
        return True
    script = effects.script(one).replace("\\", "/").rpartition("/")[2]
    if not script or _TRIAL.search(script) or _DRY.intersection(one.words):
        return False
    return any(
        pattern.search(text)
        for pattern, text in ((_REWRITER, script), (_SAVED, output), (_DONE, output))
    )
