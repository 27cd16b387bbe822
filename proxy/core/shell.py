"""Reads shell command text into the simple commands that it runs.

A command line is read as a POSIX shell reads it, as far as is needed to tell a command from a
quoted text: quotes, escapes, substitutions, heredocs (their bodies are input, not commands),
redirects, lists and pipes. It is read in one pass and never expanded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile

MAX_TEXT = 100_000
"""Characters that are read of one text."""

MAX_DEPTH = 4
"""Levels of `bash -c`, substitution and the like that are followed; deeper ones count as text."""

MAX_COMMANDS = 400
"""Simple commands that are read of one text; the rest of it is left unread."""

MAX_PIECES = 10_000
"""Words, quotes, operators and lines of input that are read of one step's commands."""

MAX_FOUND = 64
"""Words of a `find` that are looked through for `-exec`, and words of a command that it runs."""

MAX_EXECS = 4
"""Commands that are read of one `find`."""


@dataclass(slots=True)
class Room:
    """What may still be read of a step's commands: characters, and pieces of them.

    The text that a command hands to another (`bash -c`) takes pieces only.
    """

    text: int = MAX_TEXT
    pieces: int = MAX_PIECES

    def take(self, text: str) -> str:
        """As much of a text as there is room for; what is read is gone."""
        taken = text[: self.text]
        self.text -= len(taken)
        return taken


@dataclass(frozen=True, slots=True)
class Simple:
    """One simple command.

    `words` are unquoted, without leading assignments, wrappers (`sudo`, `timeout 5`, `uv run`) and
    the program's folder. `targets` are the files that output is redirected into. `stdin` is the
    text of a heredoc, a here-string or an `echo` before a pipe. `link` is the operator before it.
    """

    words: tuple[str, ...]
    targets: tuple[str, ...] = ()
    stdin: str = ""
    link: str = ""

    @property
    def program(self) -> str:
        return self.words[0] if self.words else ""


# --- reading ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Draft:
    """A simple command while it is being read; a heredoc's body comes after its line."""

    link: str
    words: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    stdin: str = ""
    feeder: _Draft | None = None
    comparing: bool = False
    """Inside `[[ … ]]`, where the signs `<` and `>` compare."""

    def add(self, word: str) -> None:
        self.words.append(word)
        if word in ("[[", "]]"):
            self.comparing = word == "[["

    def input(self) -> str:
        if self.stdin or self.feeder is None or not self.feeder.words:
            return self.stdin
        if self.feeder.words[0] in ("echo", "printf"):
            return " ".join(self.feeder.words[1:])
        return self.feeder.stdin


_TOKEN = re.compile(
    r"""
    (?P<blank>(?:[ \t\r]|\\\r?\n)+)
  | (?P<comment>\#[^\n]*)
  | (?P<newline>\n)
  | (?P<redirect>\d*+(?:<<<|<<-?|<>|<&|<(?!\()|>>|>&|>\||>(?!\())|&>>?)
  | (?P<operator>&&|\|\||;;&?|;&?|\|&?|&)
  | (?P<arithmetic>\(\((?=[^()\n]*\)\)))
  | (?P<open>\()
  | (?P<close>\))
    """,
    re.VERBOSE,
)
_PIECE = re.compile(
    r"""
    (?P<plain>[^ \t\r\n\\'"`$<>|&;()]+)
  | '(?P<single>[^']*)'?
  | \$'(?P<ansi>[^'\\]*+(?:\\.[^'\\]*+)*+)'?
  | (?P<double>")
  | \\(?P<escaped>.?)
  | (?P<arithmetic>\$\(\()
  | (?P<substitution>[$<>]\()
  | (?P<parameter>\$\{[^}\n]*\}?)
  | `(?P<backtick>[^`\\]*+(?:\\.[^`\\]*+)*+)`?
  | (?P<dollar>\$)
    """,
    re.VERBOSE | re.DOTALL,
)
_QUOTED = re.compile(
    r"""
    (?P<plain>[^"\\`$]+)
  | (?P<end>")
  | \\(?P<escaped>.?)
  | (?P<arithmetic>\$\(\()
  | (?P<substitution>\$\()
  | `(?P<backtick>[^`\\]*+(?:\\.[^`\\]*+)*+)`?
  | (?P<dollar>\$)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"\w++\+?=")
_DIGITS = re.compile(r"\d+\Z|-\Z")
_RESERVED = frozenset("if then elif else do while until ! { time coproc".split())


class _Reader:
    """One pass over a text; `drafts` grows in the order in which commands are met.

    Every piece takes room. Where none is left, the rest of the text is passed over.
    """

    def __init__(self, text: str, drafts: list[_Draft], depth: int, room: Room) -> None:
        self.text = text
        self.at = 0
        self.drafts = drafts
        self.depth = depth
        self.room = room
        self.heredocs: list[tuple[_Draft, str, bool]] = []

    def read(self, until_close: bool = False) -> None:
        """Read a list of commands, up to an unmatched `)` where `until_close`."""
        draft = self._begin("", None)
        nested = 0
        end = len(self.text)
        while self.at < end and self.room.pieces and len(self.drafts) <= MAX_COMMANDS:
            token = self._next(_TOKEN)
            kind = token.lastgroup if token else "word"
            if token is None or (kind == "redirect" and draft.comparing):
                draft.add(self._word(literal=token is not None))
                continue
            self.at = token.end()
            match kind:
                case "redirect":
                    self._redirect(token.group(), draft)
                case "newline":
                    self._bodies()
                    draft = self._begin("\n", draft)
                case "operator":
                    draft = self._begin(token.group(), draft)
                case "arithmetic":
                    self._skip_past("))")
                case "open":
                    nested += 1
                    draft = self._begin(draft.link, draft)
                case "close":
                    if until_close and not nested:
                        return
                    nested -= 1
                    draft = self._begin(")", draft)

    def _next(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The piece that begins here, if it is one of the pattern's; it is not moved past."""
        if not self.room.pieces:
            self.at = len(self.text)
            return None
        piece = pattern.match(self.text, self.at)
        self.room.pieces -= piece is not None
        return piece

    def _begin(self, link: str, before: _Draft | None) -> _Draft:
        if before is not None and not before.words and not before.targets:
            before.link = link if link != "\n" else before.link
            return before
        feeder = before if link in ("|", "|&") else None
        draft = _Draft(link=link, feeder=feeder)
        self.drafts.append(draft)
        return draft

    def _redirect(self, operator: str, draft: _Draft) -> None:
        blank = _TOKEN.match(self.text, self.at)
        if blank is not None and blank.lastgroup == "blank":
            self.at = blank.end()
        target = self._word()
        operator = operator.lstrip("0123456789")
        if operator in ("<<", "<<-"):
            self.heredocs.append((draft, target, operator == "<<-"))
        elif operator == "<<<":
            draft.stdin = target
        elif operator in (">&", "<&"):
            if operator == ">&" and not _DIGITS.match(target):
                draft.targets.append(target)
        elif operator != "<":
            draft.targets.append(target)

    def _bodies(self) -> None:
        for draft, delimiter, tabs in self.heredocs:
            draft.stdin = self._body(delimiter, tabs)
        self.heredocs.clear()

    def _body(self, delimiter: str, tabs: bool) -> str:
        """The text up to the line that holds the delimiter alone, or all that is left."""
        start = line = self.at
        while line < len(self.text) and self.room.pieces:
            self.room.pieces -= 1
            end = self.text.find("\n", line)
            end = len(self.text) if end < 0 else end
            found = self.text[line:end].rstrip("\r")
            if (found.lstrip("\t") if tabs else found) == delimiter:
                self.at = end
                return self.text[start:line]
            line = end + 1
        self.at = len(self.text)
        return self.text[start:]

    def _skip_past(self, closer: str) -> None:
        end = self.text.find(closer, self.at)
        self.at = len(self.text) if end < 0 else end + len(closer)

    def _word(self, literal: bool = False) -> str:
        """The word that begins here, unquoted; never without moving on where something is left."""
        parts: list[str] = []
        if literal:
            parts.append(self.text[self.at])
            self.at += 1
        while piece := self._next(_PIECE):
            self.at = piece.end()
            kind = piece.lastgroup or ""
            if kind == "double":
                parts.append(self._double())
            else:
                parts.append(self._piece(kind, piece))
        return "".join(parts)

    def _double(self) -> str:
        parts: list[str] = []
        while piece := self._next(_QUOTED):
            self.at = piece.end()
            kind = piece.lastgroup or ""
            if kind == "end":
                break
            if kind == "escaped" and piece["escaped"] not in '"\\$`\n':
                parts.append("\\")
            parts.append(self._piece(kind, piece))
        return "".join(parts)

    def _piece(self, kind: str, piece: re.Match[str]) -> str:
        match kind:
            case "substitution":
                self._nested()
                return ""
            case "backtick":
                self._inner(piece["backtick"])
                return ""
            case "arithmetic":
                self._skip_past("))")
                return ""
            case "escaped" if piece[kind] == "\n":
                return ""
        return piece[kind]

    def _nested(self) -> None:
        if self.depth >= MAX_DEPTH:
            self.at = len(self.text)
            return
        inner = _Reader(self.text, self.drafts, self.depth + 1, self.room)
        inner.at = self.at
        inner.read(until_close=True)
        self.at = inner.at

    def _inner(self, text: str) -> None:
        if self.depth < MAX_DEPTH:
            _Reader(text, self.drafts, self.depth + 1, self.room).read()


def commands(text: str, room: Room | None = None) -> tuple[Simple, ...]:
    """The simple commands of a text, in order, with those of `bash -c`, `eval`, substitutions."""
    found = _commands(text, 0, room or Room())
    return tuple(islice(found, MAX_COMMANDS))


def _commands(text: str, depth: int, room: Room) -> Iterator[Simple]:
    drafts: list[_Draft] = []
    _Reader(text[:MAX_TEXT], drafts, depth, room).read()
    for draft in drafts:
        yield from _settled(draft, depth, room)


def _settled(draft: _Draft, depth: int, room: Room) -> Iterator[Simple]:
    led = takewhile(lambda word: word in _RESERVED or _ASSIGNMENT.match(word), draft.words)
    words = draft.words[sum(1 for _ in led) :]
    if words or draft.targets:
        simple = Simple(_bare(words), tuple(draft.targets), draft.input(), draft.link)
        yield from _expanded(simple, depth, room)


def _expanded(simple: Simple, depth: int, room: Room) -> Iterator[Simple]:
    """The command itself, then those that it was handed as text or as arguments."""
    yield simple
    if depth >= MAX_DEPTH:
        return
    inner = handed(simple)
    if inner:
        yield from _commands(inner, depth + 1, room)
    if simple.program == "find":
        named = enumerate(simple.words[:MAX_FOUND], 1)
        runs = (at for at, word in named if word in ("-exec", "-execdir", "-ok"))
        for at in islice(runs, MAX_EXECS):
            yield Simple(_bare(simple.words[at : at + MAX_FOUND]), link="-exec")


SHELLS = frozenset("bash sh zsh dash ksh fish ash".split())
_POWERSHELLS = frozenset("powershell pwsh powershell.exe".split())


def handed(simple: Simple) -> str:
    """The text that this command runs as shell commands, or nothing."""
    words = simple.words
    if simple.program == "eval":
        return " ".join(words[1:])
    if simple.program == "ssh":
        return " ".join(words[2:])
    if simple.program == "cmd":
        return " ".join(words[2:]) if words[1:2] in (("/c",), ("/C",)) else ""
    if simple.program == "su":
        return "".join(words[words.index("-c") + 1 :][:1]) if "-c" in words else ""
    if simple.program in _POWERSHELLS:
        return words[-1] if len(words) > 2 else ""
    if simple.program not in SHELLS:
        return ""
    for i, word in enumerate(words[1:], 2):
        if not word.startswith("-"):
            return ""
        if re.match(r"-[a-z]*c\Z", word):
            return " ".join(words[i : i + 1])
    return simple.stdin


# Programs that run another one: the options that take a value, and how many operands come first.
_WRAPPERS: Mapping[str, tuple[frozenset[str], int]] = {
    "sudo": (frozenset({"-u", "-g", "-U", "-h", "-p"}), 0),
    "doas": (frozenset({"-u"}), 0),
    "env": (frozenset({"-u", "-C", "-S"}), 0),
    "command": (frozenset(), 0),
    "builtin": (frozenset(), 0),
    "exec": (frozenset({"-a"}), 0),
    "nohup": (frozenset(), 0),
    "setsid": (frozenset(), 0),
    "nice": (frozenset({"-n"}), 0),
    "ionice": (frozenset({"-c", "-n"}), 0),
    "stdbuf": (frozenset({"-i", "-o", "-e"}), 0),
    "timeout": (frozenset({"-s", "-k", "--signal", "--kill-after"}), 1),
    "gtimeout": (frozenset({"-s", "-k"}), 1),
    "xargs": (frozenset({"-I", "-n", "-P", "-d", "-L", "-a", "-s", "-E"}), 0),
    "npx": (frozenset({"-p", "--package", "-c"}), 0),
    "bunx": (frozenset(), 0),
    "pnpx": (frozenset(), 0),
    "uvx": (frozenset({"--from", "--with", "--python"}), 0),
    "busybox": (frozenset(), 0),
    "wsl": (frozenset({"-d", "-u"}), 0),
    "flock": (frozenset({"-w", "-E"}), 1),
    "cross-env": (frozenset(), 0),
    "fakeroot": (frozenset(), 0),
    "unbuffer": (frozenset(), 0),
}
_RUNNERS: Mapping[tuple[str, str], tuple[frozenset[str], int]] = {
    ("uv", "run"): (frozenset({"--with", "--python", "-p", "--extra", "--group", "--project"}), 0),
    ("poetry", "run"): (frozenset(), 0),
    ("pipenv", "run"): (frozenset(), 0),
    ("hatch", "run"): (frozenset(), 0),
    ("rye", "run"): (frozenset(), 0),
    ("pdm", "run"): (frozenset(), 0),
    **dict.fromkeys(
        (("conda", "run"), ("mamba", "run"), ("micromamba", "run")),
        (frozenset({"-n", "-p", "--name", "--prefix"}), 0),
    ),
    ("pixi", "run"): (frozenset({"-e"}), 0),
    ("bundle", "exec"): (frozenset(), 0),
    ("pnpm", "exec"): (frozenset(), 0),
    ("pnpm", "dlx"): (frozenset(), 0),
    ("yarn", "dlx"): (frozenset(), 0),
    ("yarn", "exec"): (frozenset(), 0),
    ("npm", "exec"): (frozenset(), 0),
    ("docker", "exec"): (frozenset({"-e", "-w", "-u", "--env", "--workdir", "--user"}), 1),
    ("podman", "exec"): (frozenset({"-e", "-w", "-u"}), 1),
    ("docker-compose", "exec"): (frozenset({"-e", "-w", "-u", "--env", "--workdir", "--user"}), 1),
    ("kubectl", "exec"): (frozenset({"-n", "-c"}), 1),
}
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*\Z|py\Z")


def _bare(words: Sequence[str]) -> tuple[str, ...]:
    """Without the programs that only run another, and without the program's folder and `.exe`."""
    rest = list(words)
    for _ in range(MAX_DEPTH):
        if not rest:
            break
        rest[0] = _program(rest[0])
        if rest[:2] == ["docker", "compose"]:
            rest[:2] = ["docker-compose"]
        inner = _wrapped(rest)
        if inner is None:
            break
        rest = inner
    return tuple(rest)


def _program(word: str) -> str:
    """A program's name without its folder, `.exe` and the version that a runner fetches."""
    name = word.replace("\\", "/").rpartition("/")[2].removesuffix(".exe")
    return name if name[:1] == "@" else name.partition("@")[0]


def _wrapped(words: list[str]) -> list[str] | None:
    """The command that another one runs; None where it is none of these."""
    if _PYTHON.match(words[0]) and words[1:2] == ["-m"] and len(words) > 2:
        return words[2:]
    wrapper = _WRAPPERS.get(words[0])
    if wrapper is not None:
        inner = list(operands(words[1:], *wrapper))
        # What `xargs` reads follows the words that it is given.
        return [*inner, "{}"] if inner and words[0] == "xargs" else inner
    runner = _RUNNERS.get((words[0], words[1])) if len(words) > 2 else None
    if runner is None:
        return None
    inner = list(operands(words[2:], *runner))
    # A script of that name is not the shell's `test`.
    return None if inner[:1] == ["test"] else inner


def quoted(word: str) -> str:
    """A word as a shell reads it."""
    return "'" + word.replace("'", "'\\''") + "'"


def operands(words: Sequence[str], valued: frozenset[str], leading: int = 0) -> Sequence[str]:
    """What follows the options, their values, assignments and the `leading` operands."""
    at = 0
    while at < len(words):
        word = words[at]
        if word in valued:
            at += 2
        elif word.startswith("-") or _ASSIGNMENT.match(word):
            at += 1
        elif leading:
            leading -= 1
            at += 1
        else:
            break
    return words[at:]
