"""Failures that programs print themselves, where no exit code tells of them.

A pipe into `head`, a `;` or a client without exit codes hides what a program returned; what it
printed stays. Programs that only show or move text are believed when a line of their own says that
they could not (`grep: x: No such file or directory`); what else they print is not their own. Of
programs, tests and builds the table `_PRINTED` knows how they say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice

_SHELLS = frozenset("bash sh zsh dash ksh fish".split())
_COMPLAINT = re.compile(r"^(?:/[\w./-]{0,200}/)?([\w.+-]{1,40}): (.{0,300})", re.M)
_TROUBLE = re.compile(
    r"""(?ix) no\ssuch\s | not\sfound | cannot\s | can't\s | could\snot | couldn't | denied
      | is\sa\sdirectory | not\sa\s | file\sexists | already\sexists | invalid | illegal
      | unrecogni[sz]ed | unknown | missing | syntax\serror | unexpected | untermin | not\spermitted
      | \berror\b | failed | unable | too\smany | ambiguous | does\snot | \(\d+\)\s | bad\s
      | usage:"""
)
_NO_TROUBLE = re.compile(r"(?i)broken pipe|write error|binary file|^warning")
_GIT = re.compile(r"^(?:fatal: |error: |CONFLICT \(|! \[rejected\])", re.M)


def complaint(output: str, programs: frozenset[str]) -> str:
    """`complaint` where a shell or one of these programs says in a line that it could not."""
    if "git" in programs and _GIT.search(output):
        return "complaint"
    return "complaint" if any(_complaints(output, programs)) else ""


MAX_COMPLAINTS = 40
"""Lines of an output in which a program says that it could not, that are held against commands."""

MAX_TARGETS = 8
"""Files of one command that they are held against."""


def complaints(output: str, programs: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Which of these programs, or shell, says that it could not, and what it says."""
    own = [("git", "")] if "git" in programs and _GIT.search(output) else []
    lines = (line for line in _complaints(output, programs) if line[0] != "git")
    return (*own, *islice(lines, MAX_COMPLAINTS))


def complained(lines: Sequence[tuple[str, str]], program: str, targets: Sequence[str] = ()) -> bool:
    """Whether this program says that it could not, or a shell of it or of the files it writes."""
    blamed = [f"{what}: " for what in (program, *targets[:MAX_TARGETS]) if what]
    return any(
        name == program
        or program != "git"
        and name in _SHELLS
        and any(what in told for what in blamed)
        for name, told in lines
    )


def _complaints(output: str, programs: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Who complains, and of what."""
    names = programs | _SHELLS
    if not any(f"{name}: " in output for name in names):
        return
    for line in _COMPLAINT.finditer(output):
        if line[1] in names and _TROUBLE.search(line[2]) and not _NO_TROUBLE.search(line[2]):
            yield line[1], line[2]


_MARK = r"^[^\w\n]{0,6}"
_PLACE = r"(?:\s{0,4}[\w./\\@-]{1,200}[:(]\d+(?:[:,]\d+)?\)?:?\s(?:- )?(?:fatal )?)?"

# What is looked for first, because it is cheap, what must be around it, and the rule's name.
_PRINTED: Sequence[tuple[str, re.Pattern[str], str]] = tuple(
    (needle, re.compile(pattern, re.M), rule)
    for needle, pattern, rule in (
        (
            "Traceback (",
            r"^[^\w\n]{0,12}(?:\w{1,12}: )?Traceback \(most recent call last\)",
            "traceback",
        ),
        # tests
        (
            " in ",
            r"^=*[^\S\n]*(?:\d++ \w++, )*[1-9]\d* (?:failed|errors?)\b[^\n]{0,200} in \d",
            "tests",
        ),
        ("FAIL", _MARK + r"FAIL(?:ED|URES?)?\b(?!\W{0,3}0\b)", "tests"),
        ("FAILED", r"\bFAILED\s{1,80}\[\s{0,3}\d+%\]", "tests"),
        ("\nE   ", r"^E {3,8}\S", "tests"),
        ("= ERRORS =", r"^=+ ERRORS =+", "tests"),
        ("while loading conftest", r"^ImportError while loading conftest", "tests"),
        ("not ok ", r"^\s{0,8}not ok \d", "tests"),
        ("fail ", r"^[ℹ#] fail [1-9]", "tests"),
        (
            " failure",
            r"^\d+ (?:examples?|tests?|runs?), [^\n]{0,60}?\b[1-9]\d* failures?\b",
            "tests",
        ),
        ("Tests run:", r"Tests run: \d+, (?:Failures: [1-9]|Failures: 0, Errors: [1-9])", "tests"),
        (
            " failed",
            _MARK
            + r"(?:Tests?|Test Files|Test Suites|Suites|Specs)\b[^\n]{0,80}?\b[1-9]\d* failed",
            "tests",
        ),
        ("failing", r"^\s{0,8}[1-9]\d* failing\b", "tests"),
        ("test result: FAILED", r"test result: FAILED", "tests"),
        ("Failed!", r"^Failed! ", "tests"),
        *((sign, _MARK + sign + r"(?![^\n]*\bexpected\b)", "tests") for sign in "✗✘❌✕"),
        ("× ", _MARK + r"× (?![^\n]*\bexpected\b)", "tests"),
        # linters, compilers, package managers
        ("✖ ", r"✖ \d+ problems? \([1-9]", "checks"),
        (
            "Found ",
            r"^Found [1-9]\d* (?:errors?|issues?|problems?|diagnostics?|violations?)\b"
            r"(?![^\n]{0,60}\b0 remaining)",
            "checks",
        ),
        ("would be reformatted", r"^\d+ files? would be reformatted", "checks"),
        (
            "ERROR",
            r"^(?:collecting \.\.\. )?ERROR(?:: (?!pip's dependency)| collecting"
            r"| \S{1,200}(?:::|\.py\b))",
            "error_line",
        ),
        (
            "error",
            r"^" + _PLACE + r"error(?:\[\w{1,12}\])?(?: TS\d+)?: (?!null|none|undefined|false|0\b)",
            "error_line",
        ),
        ("error TS", r"\berror TS\d+: ", "error_line"),
        ("npm ", r"^npm (?:ERR!|error\b)", "error_line"),
        ("*** ", r"^make(?:\[\d+\])?: \*\*\*", "error_line"),
        ("BUILD FAIL", r"\bBUILD FAIL(?:URE|ED)\b", "error_line"),
        ("E: ", r"^E: ", "error_line"),
        ("Command failed", r"Command failed with exit code [1-9]", "exit_code"),
        ("timed out", r"\btimed out after \d", "timeout"),
        # what could not be run or read
        ("command not found", r"command not found", "complaint"),
        (": not found", r"^[\w./-]{1,60}: (?:\d+: )?[\w./-]{1,60}: not found\r?$", "complaint"),
        ("No such file", r"^[\w./+-]{1,80}: [^\n]{0,200}No such file or directory", "complaint"),
        ("can't open file", r"^\S{0,80}python[\d.]*: can't open file", "complaint"),
        ("No module named", r"^\S{0,80}(?:python[\d.]*|Error): No module named", "complaint"),
        # exceptions of other languages
        ("SyntaxError", r"^\s{0,4}SyntaxError: ", "exception"),
        ("panic", r"^panic: |\bpanicked at\b", "exception"),
        ("Exception in thread", r"^Exception in thread ", "exception"),
        ("Unhandled", r"Unhandled ?(?:Promise ?)?(?:[Rr]ejection|[Ee]xception)", "exception"),
        ("Uncaught ", r"^\s{0,4}Uncaught ", "exception"),
        (
            "    at ",
            r"^(?:[\w.$]{0,60}Error|Exception)(?: \[\w{1,60}\])?: [^\n]{0,400}\n"
            r"(?:[^\n]{0,400}\n){0,4}?\s{2,8}at ",
            "exception",
        ),
        ("Segmentation fault", r"Segmentation fault", "exception"),
        ("core dumped", r"core dumped", "exception"),
    )
)
_RAISED = re.compile(r"(?:E {1,8})?[\w.]{1,120}(?:Error|Exception|Interrupt)(?:: |\s*\Z)")
_ECHOED = re.compile(r"(?:exit(?:[ _]?(?:code|status))?|rc)\W{0,3}?([1-9]\d{0,2})\Z", re.I)
_CLOSING = re.compile(r"\s{0,8}</\w{1,40}>\s{0,8}\Z")


def printed(output: str) -> str:
    """The rule by which the output of a program that ran shows a failure, or nothing."""
    for needle, pattern, rule in _PRINTED:
        if needle in output and pattern.search(output):
            return rule
    last = _last_line(output)
    if _RAISED.match(last):
        return "exception"
    return "exit_code" if _ECHOED.match(last.strip()) else ""


def _last_line(output: str) -> str:
    """The last line that is neither blank nor a closing tag."""
    for line in reversed(output.rstrip().splitlines()[-4:]):
        if line.strip() and not _CLOSING.match(line):
            return line
    return ""
