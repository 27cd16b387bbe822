"""Failures that programs print themselves, where no exit code tells of them.

A pipe into `head`, a `;` or a client without exit codes hides what a program returned; what it
printed stays. Programs that only show or move text are believed when a line of their own says that
they could not (`grep: x: No such file or directory`), or when they use the words that `_OWN` has of
them; what else they print is not their own. Of programs, tests and builds the table `_PRINTED`
knows how they say it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

_SHELLS = frozenset("bash sh zsh dash ksh fish".split())
_SPEAKERS = _SHELLS | {"sudo"}
_SIGNS = tuple(f"{name}: " for name in _SPEAKERS)
_COMPLAINT = re.compile(r"^(?:/[\w./-]{0,200}/)?([\w.+-]{1,40}): (.{0,300})", re.M)
_TROUBLE = re.compile(
    r"""(?ix) no\ssuch\s | not\sfound | cannot\s | can't\s | could\snot | couldn't | denied
      | is\sa\sdirectory | not\sa\s | file\sexists | already\sexists | invalid | illegal
      | unrecogni[sz]ed | unknown | missing | syntax\serror | unexpected | untermin | not\spermitted
      | \berror\b | failed | unable | too\smany | ambiguous | does\snot | \(\d+\)\s | bad\s
      | usage: | refused | unreachable | timed\sout | \brequired\b"""
)
_NO_TROUBLE = re.compile(r"(?i)broken pipe|write error|binary file|^warning")
# How programs say that they could not, where they do not put their name before it.
_DOCKER = (
    r"^(?:docker: )?Error response from daemon|^Cannot connect to the Docker daemon"
    r"|^Error: [Nn]o such |^no configuration file provided|^no such service"
)
_KUBE = r"^Error from server|^(?:The connection|Unable to connect) to the server|\Aerror: "
_SSH = (
    r"^ssh: |Permission denied \(publickey|^Host key verification failed|^lost connection"
    r"|^Connection (?:closed|refused|timed out)|^rsync error: "
)
_LINES = r"^[^\s:]{1,200}:\d+:(?:\d+:)? [A-Z]{1,3}\d{3,4}\b"
_OWN: Mapping[str, re.Pattern[str]] = {
    program: re.compile(pattern, re.M)
    for programs, pattern in (
        (
            "git",
            r"^(?:fatal: |error: |CONFLICT \(|! \[rejected\]|No stash entries found"
            r"|There is no tracking information)",
        ),
        (
            "gh",
            r"\A(?:gh: |HTTP [45]\d\d: |failed to |could not |unknown |no pull requests"
            r"|You are not logged)|^GraphQL: |^(?:pull request|issue) \w{1,20} failed: ",
        ),
        ("patch", r"^Hunk #\d+ FAILED|\bhunks? FAILED\b|^patch: \*{4}|^\*{4} Only garbage"),
        ("zip", r"^zip (?:I/O )?error: "),
        ("wget", r"\bERROR \d{3}: |\bunable to resolve host|\bfailed: "),
        ("docker podman docker-compose", _DOCKER),
        ("kubectl oc", _KUBE),
        ("ssh scp sftp rsync", _SSH),
        (
            "aws",
            r"^Unable to locate credentials|^An error occurred \(|^fatal error: "
            r"|^(?:upload|download|copy|move) failed: |^Could not connect to the endpoint",
        ),
        ("jq", r"^(?:jq: |parse )error"),
        ("json.tool", r"\A(?:Expecting|Extra data|Invalid|Unterminated) "),
        ("pip pip3", r"^WARNING: Package\(s\) not found"),
        ("openssl", r"^Unable to load |^Can't open |:error:[0-9A-F]{8}:"),
        ("perl", r"^Can't (?:open perl script|locate) "),
        ("yq", r"^Error: "),
        ("systemctl", r"^Failed to |^Unit \S{1,80} could not be found|^Job for \S{1,80} failed"),
        ("flake8 pycodestyle pydocstyle pylint hadolint", _LINES),
        ("yamllint", r"^ {2}\d+:\d+ {1,8}error "),
        ("sqlfluff", r"\A== \[[^\]\n]{1,200}\] FAIL$"),
        ("shellcheck", r"^In \S{1,200} line \d+:$"),
    )
    for program in programs.split()
}
# How Windows' shells say that there is no such program, or that one of theirs could not.
_WINDOWS = re.compile(
    r"^(?:\S{1,80} ?: The term )?'[^'\n]{1,200}' is not recognized as (?:an internal|the name"
    r"|a name)|^\s{0,8}\+ CategoryInfo\s{0,20}: ",
    re.M,
)


def complaint(output: str, programs: frozenset[str]) -> str:
    """`complaint` where a shell or one of these programs says in a line that it could not."""
    if any(_owners(output, programs)) or any(_complaints(output, programs)):
        return "complaint"
    known = "is not recognized as" in output or "+ CategoryInfo" in output
    return "complaint" if known and _WINDOWS.search(output) else ""


def _owners(output: str, programs: frozenset[str]) -> Iterator[str]:
    """Which of these programs say in words of their own that they could not."""
    return (name for name in programs if name in _OWN and _OWN[name].search(output))


MAX_COMPLAINTS = 40
"""Lines of an output in which a program says that it could not, that are held against commands."""

MAX_TARGETS = 8
"""Files of one command that they are held against."""


def complaints(output: str, programs: frozenset[str]) -> tuple[tuple[str, str], ...]:
    """Which of these programs, or shell, says that it could not, and what it says."""
    own = ((name, "") for name in _owners(output, programs))
    return (*own, *islice(_complaints(output, programs), MAX_COMPLAINTS))


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
    if not any(sign in output for sign in (*_SIGNS, *(f"{name}: " for name in programs))):
        return
    names = programs | _SPEAKERS
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
            r"^[^\w\n]{0,12}(?:\w{1,12}: |[\w.]{1,60}\s{2,80})?Traceback \(most recent call last\)",
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
        ("(fail) ", r"^\(fail\) ", "tests"),
        (" fail", r"^ {0,4}[1-9]\d* fail(?:ed)?$", "tests"),
        ("failed=", r"\bfailed=\"?[1-9]", "tests"),
        (" failed out of", r"\b[1-9]\d* tests? failed out of \d", "tests"),
        ("Some tests failed", r"\bSome tests failed\.", "tests"),
        ("Test suite failed", r": Test suite failed$", "tests"),
        (": FAIL", r"^ {0,4}[\w.-]{1,60}: FAIL\b", "tests"),
        (
            " failures",
            r"^(?:[1-9]\d* failures?, \d+|\d+ failures?, [1-9]\d*) errors?\b",
            "tests",
        ),
        ("Executed ", r"^\s{0,8}Executed \d+ tests?, with [1-9]", "tests"),
        ("nox > ", r"^nox > Session \S{1,80} failed", "tests"),
        *((sign, _MARK + sign + r"(?![^\n]*\bexpected\b)", "tests") for sign in "✗✘❌✕"),
        ("✖ ", _MARK + r"✖ (?!\d+ problems?\b|[^\n]*\bexpected\b)", "tests"),
        ("***Test Failed", r"^\*{3}Test Failed\*{3}", "tests"),
        ("exiting with code ", r"\bexiting with code [1-9]", "exit_code"),
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
        ("[warn] Code", r"^\[warn\] Code style issues", "checks"),
        (
            "offense",
            r"\b[1-9]\d* offenses? detected\b(?!, \d+ offenses? corrected)",
            "checks",
        ),
        (" issue", r"^[1-9]\d* issues?(?: found\b|:$|\.$)", "checks"),
        ("error", r"^[1-9]\d* errors?, \d+ warnings?\b", "checks"),
        ("...Failed", r"\.\.\.Failed$", "checks"),
        ("- exit code: ", r"^- exit code: [1-9]", "checks"),
        (
            "ERROR",
            r"^(?:collecting \.\.\. |psql:[^\s:]{1,200}:\d+: )?ERROR(?:: (?!pip's dependency)"
            r"| collecting| \d{3,5} \(| in \S| \S{1,200}(?:::|\.py\b))",
            "error_line",
        ),
        (
            "error",
            r"^(?:[\w./+-]{1,60}: )?"
            + _PLACE
            + r"error(?:\[\w{1,12}\])?(?: [A-Z]{1,6}\d{1,6})?: (?!null|none|undefined|false|0\b)",
            "error_line",
        ),
        ("error TS", r"\berror TS\d+: ", "error_line"),
        ("npm ", r"^npm (?:ERR!|error\b)", "error_line"),
        ("*** ", r"^make(?:\[\d+\])?: \*\*\*", "error_line"),
        ("FAIL", r"\b(?:BUILD|Build) FAIL(?:URE|ED)\b", "error_line"),
        ("CMake Error", r"^CMake Error\b", "error_line"),
        (".go:", r"^(?:vet: )?[\w./-]{1,200}\.go:\d+:\d+: ", "error_line"),
        ("error:\n", r"^[\w./-]{1,200}:\d+:\d+: error:$", "error_line"),
        ("ERROR!", r"^ERROR! ", "error_line"),
        ("Error: ", r"^\S{1,200}\(\d+, \d+\) Error: |^-- [^\n]{1,60} Error: ", "error_line"),
        ("Could not connect", r"^Could not connect to \S", "error_line"),
        ("Diff in ", r"^Diff in \S{1,300}:\d+:", "checks"),
        ("Coverage failure", r"^Coverage failure: ", "checks"),
        ("Issues found: ", r"\bIssues found: [1-9]", "checks"),
        ("Status: ", r"^Status: [1-9]\d* ERROR", "checks"),
        ("ELIFECYCLE", r"^\s{0,4}ELIFECYCLE\b", "error_line"),
        ("ERR_PNPM", r"^\s{0,4}ERR_PNPM_", "error_line"),
        ("arse error: ", r"^(?:PHP )?Parse error: ", "error_line"),
        ("atal error: ", r"^(?:PHP F|F|f)atal error: ", "error_line"),
        ("(error) ", r"^\(error\) ", "error_line"),
        ("compiled with ", r"\bcompiled with [1-9]\d* errors?\b", "error_line"),
        ("Failed to compile", r"^Failed to compile\.", "error_line"),
        ("[error] (", r"^\[error\] \(", "error_line"),
        ("[ERROR] ", r"^\[ERROR\] (?:Failed to execute goal|COMPILATION ERROR)", "error_line"),
        ("fatal: [", r"^fatal: \[", "error_line"),
        ("│ Error", r"^│ Error: ", "error_line"),
        ("E: ", r"^E: ", "error_line"),
        ("Command failed", r"Command failed with exit code [1-9]", "exit_code"),
        ("Killed", r"^(?:Killed$|[^\s:]{1,80}: line \d+:\s{1,8}\d{1,8} Killed\b)", "killed"),
        ("timed out", r"\btimed out after \d", "timeout"),
        # what could not be run or read
        ("command not found", r"command not found", "complaint"),
        (": not found", r"^[\w./-]{1,60}: (?:\d+: )?[\w./-]{1,60}: not found\r?$", "complaint"),
        ("No such file", r"^[\w./+-]{1,80}: [^\n]{0,200}No such file or directory", "complaint"),
        (
            ": line ",
            r"^[\w./-]{1,100}: line \d+: [^\n]{0,200}\b(?:unexpected|syntax error|Permission denied"
            r"|not found|unbound variable|cannot|bad|ambiguous|[Ii]s a directory|division by 0)\b",
            "complaint",
        ),
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
        ("** (", r"^\*\* \([A-Z][\w.]{1,80}\) ", "exception"),
        ("lua", r"^lua[\w.]{0,6}: [^\n]{1,200}:\d+: ", "exception"),
        ("Syntax error: ", r"^[\w./-]{1,100}: \d+: Syntax error: ", "exception"),
        ("Execution ", r"^Execution (?:halted|of \S{1,200} aborted)", "exception"),
        ("syntax error at ", r"\bsyntax error at \S{1,200} line \d", "exception"),
        (
            ".rb:",
            r"^[^\s:]{1,200}\.rb:\d+:in [`'][^\n]{0,400}\((?:\w{1,60}::){0,4}\w{0,60}Error\)",
            "exception",
        ),
        ("Segmentation fault", r"Segmentation fault", "exception"),
        ("core dumped", r"core dumped", "exception"),
    )
)
# By what stands in many of them, so that most outputs are looked through for few.
_COMMON = ("ail", "AIL", "rror", "RROR", "")
_GROUPS = tuple(
    (sign, tuple(row for row in _PRINTED if next(s for s in _COMMON if s in row[0]) == sign))
    for sign in _COMMON
)
_RAISED = re.compile(
    r"(?:E {1,8})?[\w.]{1,120}(?:(?:Error|Exception|Interrupt)(?:: |\s*\Z)"
    r"|\.(?:exceptions?|errors?)\.[A-Z]\w{0,60}: )"
)
# What an interpreter hands back in place of an output: the exception's `repr`.
_REPR = re.compile(r"\A\s{0,8}[A-Z]\w{0,60}(?:Error|Exception)\([^\n]{0,2000}\)\s{0,8}\Z")
_ECHOED = re.compile(r"(?:exit(?:[ _]?(?:code|status))?|rc)\W{0,3}?([1-9]\d{0,2})\Z", re.I)
_CLOSING = re.compile(r"\s{0,8}</\w{1,40}>\s{0,8}\Z")


def printed(output: str) -> str:
    """The rule by which the output of a program that ran shows a failure, or nothing."""
    last = _last_line(output)
    # Who reads the output had enough of it.
    if last.startswith("BrokenPipeError"):
        return ""
    for sign, rows in _GROUPS:
        if sign not in output:
            continue
        for needle, pattern, rule in rows:
            if needle in output and pattern.search(output):
                return rule
    if _RAISED.match(last) or _REPR.match(output):
        return "exception"
    return "exit_code" if _ECHOED.match(last.strip()) else ""


def _last_line(output: str) -> str:
    """The last line that is neither blank nor a closing tag."""
    for line in reversed(output.rstrip().splitlines()[-4:]):
        if line.strip() and not _CLOSING.match(line):
            return line
    return ""
