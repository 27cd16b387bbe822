"""Whether a result shows that its call failed: by what the wire, the tool or the program says.

A result has up to three layers, read from the outside in: what the wire says (`is_error`), what the
tool puts around the output (an exit code, `success: false`, an error payload), and the output.
Error words count only where they are the failure's own: in the output of a program that ran, never
in text that was merely shown. A long text is read at both ends only (`WINDOW`), in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any

from proxy.core.calls import Result, ends, parsed, unescaped
from proxy.core.printed import complaint, printed

WINDOW = 12_000
"""Characters read at each end of an output."""

EDGE = 500
"""Characters at each end in which a tool puts its own words."""

MAX_JSON = 200_000
"""A longer result is not parsed; its edges are read as text."""

SHORT = 1000
"""A tool's own error is short; a longer result is what was asked for."""

BRIEF = 400
"""The same where a text was asked for: at most this long, and of at most `BRIEF_LINES` lines."""

BRIEF_LINES = 3


class Kind(Enum):
    """What was called, as far as its result is concerned."""

    READ = "read"
    """Shows text that is there."""
    TEXT = "text"
    """Says something: a page, a summary, another agent, a user."""
    PLAIN = "plain"
    """A shell command of programs that show or move text."""
    RUN = "run"
    """A program, a test, a build: what it prints is its own."""
    WRITE = "write"
    """A tool that edits or creates."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`rule` names what shows the failure; empty where nothing does.

    `code` is the exit code where one is shown. `output` is the text inside the tool's wrapping,
    clipped. `refused`: the tool did not execute anything.
    """

    rule: str
    code: int | None
    output: str
    refused: bool = False


def outcome(
    result: Result,
    kind: Kind,
    programs: frozenset[str] = frozenset(),
    extra: Sequence[re.Pattern[str]] = (),
) -> Outcome:
    """Read a result. `programs` are those that a command ran, `extra` further error patterns."""
    layers = _peeled(result.text, kind)
    text = ends(layers.text, WINDOW)
    rule = _own(result, layers) or _matched(text, extra) or _words(text, kind, layers.code)
    refused = bool(rule) and layers.code is None and _REFUSED.match(text[:EDGE]) is not None
    if not rule and kind in (Kind.RUN, Kind.PLAIN):
        rule = complaint(text, programs)
    if not rule and kind is Kind.RUN:
        rule = printed(text)
    return Outcome(rule, layers.code, text, refused)


# --- the layers around an output ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layers:
    text: str
    code: int | None = None
    error: str = ""


_MCP = re.compile(r"\A(?:meta=\S{1,200} )?(?:content=)?\[?TextContent\(")
_MCP_TEXT = re.compile(r"text=(['\"])")
_LEAD = re.compile(
    r"""(?ix) \A \s{0,40} (?: (?:observation|tool\soutput|execution\slogs|result):[ \t]{0,40}\r?\n
      | observation:\s{1,4}
      | <system>
      | \[[a-z]\w{1,40} (?:\sfor\s[^\n]{0,300})? \] \s result:\s{0,4}
      | \#{3}\s(?:result|error)[ \t]{0,4}\n )"""
)
_MAX_LAYERS = 5


def _peeled(text: str, kind: Kind) -> _Layers:
    """What the tools say around the output, and the output."""
    code: int | None = None
    error = ""
    for _ in range(_MAX_LAYERS):
        layer = _mcp(text) or _json(text, kind)
        if layer is None:
            break
        code = layer.code if code is None else code
        error = error or layer.error
        text = layer.text
    text = _LEAD.sub("", text, count=1)
    if code is None and kind in (Kind.PLAIN, Kind.RUN, Kind.WRITE):
        code = _exit_code(text)
    return _Layers(text, code, error)


def _mcp(text: str) -> _Layers | None:
    """The `repr` of a tool result of the Model Context Protocol's Python library."""
    if not _MCP.match(text):
        return None
    error = "is_error" if text[-EDGE:].rstrip(")").endswith("isError=True") else ""
    start = _MCP_TEXT.search(text)
    if start is None:
        return _Layers("", error=error)
    end = text.rfind(f"{start[1]}, annotations=")
    inner = text[start.end() : end if end > 0 else None]
    return _Layers(unescaped(inner if len(inner) <= MAX_JSON else ends(inner, WINDOW)), error=error)


_CODES = ("returncode", "return_code", "exit_code", "exitCode", "exit_status", "exitStatus")
_FLAGS = ("success", "ok", "succeeded")
_FAILED = frozenset({"error", "failed", "failure", "timeout", "timed_out", "rejected", "denied"})
_NO_ERROR = frozenset({"", "none", "null", "(none)", "false", "no", "0", "ok"})
_OUTPUTS = ("output", "stdout", "stderr", "text", "content", "result", "results", "data", "message",
            "response", "structuredContent", "output_head", "output_tail")  # fmt: skip
_INNER = (*_OUTPUTS, "metadata")
_WRAPPINGS = frozenset({"content", "text", "structuredContent", "result", "output", "response"})
_MAX_NODES = 200
_SMALL = 5
"""Keys of an object that may be an error payload where a file's own JSON may stand as well."""


def _json(text: str, kind: Kind) -> _Layers | None:
    """A result that is one JSON value: what it says of itself, and the texts in it."""
    start = text[:EDGE].lstrip()[:1]
    if start not in ("{", "[") or len(text) > MAX_JSON:
        return None
    value = parsed(text)
    shown = kind in (Kind.READ, Kind.TEXT, Kind.PLAIN)
    code: int | None = None
    error = ""
    texts: list[str] = []
    for depth, node in _nodes(value):
        code = _code(node) if code is None else code
        if depth == 0 and (not shown or len(node) <= _SMALL):
            error = error or _payload(node, kind)
        texts += [node[key] for key in _OUTPUTS if isinstance(node.get(key), str)]
    return _Layers("\n".join(texts), code, error) if code is not None or error or texts else None


def _nodes(value: Any) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of a value that speak of the result, outermost first, each with its depth."""
    waiting = [(0, value)]
    for depth, node in waiting:
        if isinstance(node, list):
            waiting += [(depth, item) for item in node[: _MAX_NODES - len(waiting)]]
        elif isinstance(node, dict):
            yield depth, node
            inner = [
                (depth + (key not in _WRAPPINGS), value)
                for key in _INNER
                if isinstance(value := _unpacked(node.get(key)), dict | list)
            ]
            waiting += inner[: _MAX_NODES - len(waiting)]


def _unpacked(value: Any) -> Any:
    """A value, or the JSON object that a text holds."""
    return parsed(value) if isinstance(value, str) and value.lstrip()[:1] == "{" else value


def _code(node: Mapping[str, Any]) -> int | None:
    for key in _CODES:
        value = node.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


_TOLD = ("error", "message", "reason", "detail", "details", "code")


def _payload(node: Mapping[str, Any], kind: Kind) -> str:
    if node.get("isError") is True or node.get("is_error") is True:
        return "is_error"
    if any(node.get(flag) is False for flag in _FLAGS):
        return "success_false"
    if _is_error(node.get("error")) or _is_error(node.get("errors")):
        return "error_payload"
    status = node.get("status")
    if isinstance(status, str) and status.lower() in _FAILED and _own_status(node, kind):
        return "error_payload"
    return _counted(node) if kind is Kind.RUN else ""


def _own_status(node: Mapping[str, Any], kind: Kind) -> bool:
    """Whether a status is the call's, and not that of a task or an order which it shows."""
    if kind is Kind.RUN or len(node) == 1 or node["status"].lower() == "error":
        return True
    return any(key in node for key in _TOLD)


def _counted(node: Mapping[str, Any]) -> str:
    """What a run counts as failed."""
    counts = (node.get(key) for key in ("failed", "failures", "errors"))
    return "tests" if any(type(count) is int and count > 0 for count in counts) else ""


def _is_error(value: Any) -> bool:
    if isinstance(value, str):
        return value.strip().lower() not in _NO_ERROR
    return isinstance(value, dict | list) and bool(value)


_EXIT = re.compile(
    r"""(?ixm)
    <(?:return_?code|exit_?code|exit_?status)>\s*(-?\d{1,10})
  | "(?:returncode|return_code|exit_code|exitCode)"\s*:\s*(-?\d{1,10})
  | ^\W{0,3}(?:exit|return)[ _-]?(?:code|status)\b\W{0,4}?(-?\d{1,10})\b
  | ^\W{0,3}(?:[a-z]{1,12}:?\s){0,3}
      (?:exited|finished|completed|failed|terminated|returned|ended|stopped)
      \s(?:unsuccessfully\s)?with\s(?:an?\s)?(?:non-zero\s)?(?:exit\s|return\s)?
      (?:(?:code|status)\W{0,3}?)?(-?\d{1,10})\b
  | [(\[<]exit\s(?:code|status)\W{1,3}?(-?\d{1,10})[)\]>]\W{0,2}$
  | ^command\s(?:["'`][^\n]{0,300}?["'`]\s)?(?:executed|failed|finished|completed)\b
      [^\n]{0,300}?\bexit\scode\W{0,3}?(-?\d{1,10})\W{0,2}$
    """
)


def _exit_code(text: str) -> int | None:
    """The exit code that a tool shows before or after the output."""
    shown = [*islice(_exits(text[:EDGE]), 1)] or [*_exits(text[-EDGE:])]
    if not shown:
        return None
    return int(next(group for group in shown[-1].groups() if group is not None))


_EXIT_SIGNS = ("exit", "return", " with ")


def _exits(edge: str) -> Iterator[re.Match[str]]:
    low = edge.lower()
    return _EXIT.finditer(edge) if any(sign in low for sign in _EXIT_SIGNS) else iter(())


# --- what a tool says ---------------------------------------------------------------------------

_SOMEBODY_SAID_NO = r"""(?:the\s)?user\s(?:has\s)?
    (?:denied|rejected|declined|cancell?ed|refused|doesn't\swant|aborted|did\snot\sallow)
  | (?:aborted|denied|rejected|declined|cancell?ed)\sby\s(?:the\s)?user\b
  | [a-z]++\srequested\spermissions?\sto\b
  | (?:operation|tool|command)\s['"`][^\n]{0,200}?['"`]\sis\snot\s
    (?:supported|allowed|permitted|available)\b
  | exec_command\sfailed\sfor\b | failed\sin\ssandbox\b | unsupported\scall:
  | apply_patch\sverification\sfailed\b"""

# A tool's own error, whatever the tool.
_HARD = re.compile(
    r"""(?ix) \A [\W_]{0,6} (?:
        error \s* : (?! \s* (?:\(?none\b|null\b|undefined\b|false\b|0\b|pip's\s))
          (?! (?-i:(?<=ERROR:)[\w.]{1,60}:) )
      | errors? \s (?:executing|calling|running|invoking|while|when|reading|writing
          |editing|occurred|processing|creating|applying|during|in\stool|from\stool)
      | an?\s (?:unexpected\s|internal\s|unknown\s)? error \s (?:has\s)? occurred
      | (?:tool\s?(?:call|execution|use)?|(?:the\s)?(?:tool|function)\s(?:call|execution)) .{0,80}?
        \b (?:failed|timed\sout|not\sfound|cancell?ed|rejected|returned\s[^\n]{0,20}error)
      | <(?:tool_use_error|error|error_details|exception)>
      | (?-i:(?:[a-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception)):\s | traceback\s\(most
      | (?-i:E(?!RROR)[A-Z]{3,12}):\s | ran\sinto\s | \d+\svalidation\serrors?\sfor
      | \# \s* \d+ \s SEARCH/REPLACE \s blocks? \s failed
      | I\sdidn't\ssee\sany\sproperly\sformatted | """
    + _SOMEBODY_SAID_NO
    + ")"
)
# A line of source code that a shown text may begin with.
_FIELD = re.compile(r"\s*error\s*:")
# The same where nothing else follows: a text may begin with these words, an error consists of them.
_START = re.compile(
    r"""(?ix) \A [\W_]{0,6} (?:
        failed\b | failure\b | unable\sto | could\snot | couldn't | cannot | can't | invalid\b
      | unknown\s | unsupported\s | no\ssuch\b | not\sfound | permission\sdenied | access\sdenied
      | operation\snot\spermitted | not\sallowed | not\sa\s(?:file|directory) | fatal: | panic:
      | timed?\s?out\b | aborted | cancell?ed | interrupted | rejected | missing\s | skipped\s
      | no\sresult\sprovided | request\sinterrupted | (?!no\b)[a-z]{1,20}[ ](?:failed\b|error[ ]?:)
      | (?:input|schema|argument|parameter)s?\s(?:validation|error) | http\s(?:error\s)?[45]\d\d\b
      | [45]\d\d\s(?:client|server|bad|not|forbidden|unauthorized|internal|too) )"""
)
# Said of something else, as a search says what it looked for.
_QUOTED = re.compile(r'"[^"\n]{1,200}"|`[^`\n]{1,200}`')
_WITHIN = re.compile(
    r"""(?ix) \A [^\n]{0,160}? \b (?: not\sfound | does\s?n[o']t\sexist | no\ssuch\sfile
      | timed\sout
      | is\s(?:not\s)?a\sdirectory | is\snot\sa\s(?:valid|file) | permission\sdenied
      | an\serror\soccurred | (?:has|was)\s(?:been\s)?(?:denied|rejected|cancell?ed|aborted)
      | not\s(?:allowed|permitted|supported) | must\sbe\s(?:an?\s)?absolute
      | beyond\s(?:the\s)?end\sof | exceeds\s(?:the\s)?max )"""
)
# What a shell tool says in place of an output.
_FAILED_COMMAND = re.compile(
    r"""(?ix) \A [\W_]{0,6} (?: error:\s (?:command\sfailed | \w{0,60}(?:error|exception)\b)
      | errors?\s(?:executing|running|calling|invoking)\s
      | an\serror\soccurred\s(?:while|when|during) | <exception> | cannot\sexecute\b
      | the\ssystem\scannot\sfind\sthe\s(?:file|path|drive)\b | access\sis\sdenied
      | a\ssubdirectory\sor\sfile\s[^\n]{1,200}\salready\sexists
      | working\sdirectory\s.{0,200}?does\snot\sexist
      | (?:tool|function|command)\s(?:call|execution)?\s?.{0,60}?(?:timed\sout|failed)\b | """
    + _SOMEBODY_SAID_NO
    + ")"
)
# What a shell tool says after an output.
_AFTER = re.compile(
    r"""(?ixm) ^ \W{0,3} (?: an\serror\soccurred\s(?:during|while)
      | (?:the\s)?command\stimed\sout | (?:command|process|execution|tool\scall)\s.{0,60}timed\sout
      | (?:command|operation|request)\s(?:was\s)?(?:aborted|cancell?ed|killed|interrupted)
      | user\saborted\sthe\scommand
      | (?:(?!terminated)\w++\s){0,2}+terminated\s.{0,40}\btime\s?(?:out|limit)\b
      | signal:\s(?!\(none\)|0\b)\S )"""
)
_AFTER_SIGNS = "error,timed out,abort,cancel,kill,interrupt,signal:,terminated".split(",")
# Nothing was executed.
_REFUSED = re.compile(
    r"""(?ix) \A [\W_]{0,6} (?: (?:error:?\s)? (?:unknown|invalid|unsupported|no\ssuch)\b
      | (?:error:?\s)? (?:tool|command|permission|function)\s .{0,80}?
        (?:denied|not\sallowed|rejected|blocked|not\sfound:|not\spermitted)
      | (?:error:?\s)? (?:input|argument|schema)\s?validation | tool\scall\stimed\sout
      | <tool_use_error> | """
    + _SOMEBODY_SAID_NO
    + ")"
)
# An edit that changed nothing, and one that did: the words of editors, beside those of any tool.
_UNEDITED_START = re.compile(
    r"""(?ix) \A [\W_]{0,6} (?: no\s(?:exact\s)?(?:match|replacement|change|edit|occurrence)
      | multiple\s(?:matches|occurrences) | (?:the\s\w{1,20}\s)?did\snot\s | nothing\sto\s
      | found\s\d+\s(?:matches|occurrences)\b[^\n]{0,80}\bbut\b
      | your\sproposed\sedit\b | (?:the\s)?file\shas\s(?:been\s)?(?:modified|changed)\ssince\b
      | (?:old_?str(?:ing)?|string\sto\sreplace|search\s(?:text|block|string))\b
        [^\n]{0,80}? \bnot\s )"""
)
_EDITED = re.compile(
    r"""(?ix) \A [^\n]{0,300}? \b (?<!not\s) (?<!not\sbe\s) (?<!not\sbeen\s) (?: success\w*
      | created | wrote | written | applied | replaced | updated | modified | saved | edited
      | overwrote | overwritten | appended | deleted | moved | renamed )\b"""
)
_UNEDITED = re.compile(
    r"""(?ix) \A [^\n]{0,300}? (?: no\s(?:exact\s)?(?:match|replacement|change|edit|occurrence)s?\b
      | not\s(?:found|unique|appear|match|contain|exist|be|been|performed|applied|written|created)\b
      | not\s(?:edited|updated|modified|replaced|saved)\b | multiple\s(?:matches|occurrences)
      | \bfailed\b | already\sexists | identical | unchanged | must\s(?:first\s)?read
      | read\sit\sfirst )"""
)


def _own(result: Result, layers: _Layers) -> str:
    """What the wire and the tool's wrapping say."""
    if result.failed:
        return "is_error"
    return "exit_code" if layers.code else layers.error


def _matched(text: str, patterns: Sequence[re.Pattern[str]]) -> str:
    return "pattern" if any(pattern.search(text) for pattern in patterns) else ""


def _words(text: str, kind: Kind, code: int | None) -> str:
    """What the tool says in place of an output, or after it."""
    if kind is Kind.WRITE:
        return _editor_words(text)
    if kind in (Kind.PLAIN, Kind.RUN):
        told = _shell_words(text, kind, code)
    elif kind is Kind.TEXT:
        told = _hard(text) or _brief(text) and _START.match(text) is not None
    elif kind is Kind.READ:
        told = _hard(text) and not _FIELD.match(text) or _brief(text) and _soft(text)
    else:
        told = _hard(text) or _soft(text)
    return "error_text" if told else ""


def _hard(text: str) -> bool:
    """Whether a result begins with an error, whatever comes after it."""
    return _HARD.match(text[:EDGE]) is not None


def _soft(text: str) -> bool:
    """Whether a short result consists of an error."""
    if len(text) >= SHORT:
        return False
    said = text if text[:1] in ('"', "{", "[") else _QUOTED.sub('""', text[:EDGE])
    return bool(_START.match(text) or _WITHIN.match(said) or _after(text))


def _after(edge: str) -> bool:
    low = edge.lower()
    return any(sign in low for sign in _AFTER_SIGNS) and _AFTER.search(edge) is not None


def _editor_words(text: str) -> str:
    head = text[:EDGE]
    if _hard(text) or _START.match(head):
        return "error_text"
    if _UNEDITED_START.match(head):
        return "not_edited"
    if _EDITED.match(head):
        return ""
    if _UNEDITED.match(head):
        return "not_edited"
    return "error_text" if _soft(text) else ""


def _shell_words(text: str, kind: Kind, code: int | None) -> bool:
    """Whether a shell tool tells of an error; what comes with exit code 0 is the program's own."""
    head = text[:EDGE]
    if _FAILED_COMMAND.match(head) or (kind is Kind.RUN and code is None and _hard(text)):
        return True
    if _REFUSED.match(head) and (_hard(text) or _soft(text)):
        return True
    return _after(head) or _after(text[-EDGE:])


def _brief(text: str) -> bool:
    return len(text) < BRIEF and text.strip().count("\n") < BRIEF_LINES
