"""What an assistant message did: its calls, each with its result, in whatever form its client uses.

Native calls (`tool_calls` of type function or custom, the old `function_call`, `tool_use` parts),
calls inside calls (`execute-tool`, `batch`, `tool_uses`) and the protocols that agents write as
text: fenced shell blocks, `<tool_call>`, `<function=…>`, `Calling tools:`, `Action:`, XML tags,
keystrokes and SEARCH/REPLACE blocks. Nothing here raises, whatever the shape.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

MAX_CALLS = 64
"""Calls that are read of one message, and of one call that holds others."""

MAX_NAME = 200
"""Characters that are read of a tool's name."""

MAX_PARTS = 1000
"""Content parts that are read of one message."""

MAX_ARGUMENTS = 1_000_000
"""Characters of JSON that are read of the arguments of one message's calls."""

MAX_SAID = 200_000
"""Characters that are read of what a message says, and of each end of a result."""

MAX_NODES = 200
"""Values of a content that is neither text nor parts; where it holds more, it is not read."""

MAX_REPR = 100_000
"""Characters of a `repr` that is read, and at most `MAX_QUOTED` quoted texts and words in it."""

MAX_QUOTED = 10_000

MAX_BODY = 100_000
"""Characters that are read of the body of a tag or an action."""

_MAX_DEPTH = 3


@dataclass(frozen=True, slots=True)
class Call:
    """`arguments` is the parsed object; `{"input": text}` where it is a text or no JSON."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """`failed` is what the wire itself says (`is_error`, `status`), not what the text says."""

    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """One call and its result; None while there is none."""

    call: Call
    result: Result | None


def done(message: Mapping[str, Any], answers: Sequence[Any]) -> tuple[Done, ...]:
    """The calls of an assistant message with their results; without any, a failure that answers it.

    `answers` are the messages that follow: tool messages, or for a text protocol the next message.
    """
    native = list(islice(_native(message), MAX_CALLS))
    if native:
        paired = _paired([call_id for call_id, _ in native], answers)
        pairs = list(zip(_read([body for _, body in native]), paired, strict=True))
    else:
        pairs = list(_spoken(_said(message), _answer(answers)))
    found = (Done(one, result) for call, result in pairs for one in _unwrapped(call))
    return tuple(islice(found, MAX_CALLS))


def parsed(text: str) -> Any:
    """The JSON value of a text; None where it is none (or nested too deep)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def share(sizes: Sequence[int], budget: int) -> int:
    """How long each of so many texts may be, that all together stay within a budget.

    Those that are shorter than their part leave the rest of it to the others.
    """
    left = budget
    for i, size in enumerate(sorted(sizes)):
        if size * (len(sizes) - i) > left:
            return left // (len(sizes) - i)
        left -= size
    return budget


def ends(text: str, limit: int) -> str:
    """Both ends of a text, `limit` characters each; the whole of a text that is no longer."""
    return text if len(text) <= 2 * limit else f"{text[:limit]}\n…\n{text[-limit:]}"


def text_of(content: Any) -> str:
    """The text of a message's content: a string, its parts one a line, or any value as JSON."""
    if isinstance(content, list):
        return "\n".join(_text(part) for part in content[:MAX_PARTS])
    return _text(content)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if _is_map(value):
        for key in ("text", "content", "output"):
            if isinstance(value.get(key), str):
                return str(value[key])
    return "" if value is None or _large(value) else json.dumps(value, default=str)


def _large(value: Any) -> bool:
    """Whether a value holds more than is read."""
    waiting = [value]
    room = MAX_SAID
    for node in waiting:
        room -= len(node) if isinstance(node, str) else 1
        inner = node if isinstance(node, list) else node.values() if _is_map(node) else ()
        if room < 0 or len(waiting) + len(inner) > MAX_NODES:
            return True
        waiting += inner
    return False


# --- native calls -------------------------------------------------------------------------------


def _native(message: Mapping[str, Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """The calls of a message as they stand, each with its id (or whatever stands there)."""
    for entry in _items(message.get("tool_calls")):
        body = next((entry[k] for k in ("function", "custom") if _is_map(entry.get(k))), entry)
        yield entry.get("id"), body
    if _is_map(message.get("function_call")):
        yield None, message["function_call"]
    for part in _items(message.get("content")):
        if part.get("type") == "tool_use":
            yield part.get("id"), part


def _read(bodies: Sequence[Mapping[str, Any]]) -> Iterator[Call]:
    """The calls; without arguments where these are too long to be read."""
    given = [body.get("arguments", body.get("input")) for body in bodies]
    limit = share([len(value) for value in given if isinstance(value, str)], MAX_ARGUMENTS)
    for body, value in zip(bodies, given, strict=True):
        yield _named(body, None if isinstance(value, str) and len(value) > limit else value)


def _call(body: Mapping[str, Any]) -> Call:
    return _named(body, body.get("arguments", body.get("input")))


def _named(body: Mapping[str, Any], given: Any) -> Call:
    name = body.get("name")
    return Call(name[:MAX_NAME] if isinstance(name, str) else "", _arguments(given))


def _arguments(given: Any) -> Mapping[str, Any]:
    value = parsed(given) if isinstance(given, str) else given
    if isinstance(value, dict):
        return value
    return {} if given is None else {"input": given if value is None else value}


def _results(answers: Sequence[Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """The results as they stand, each with the id of its call (or whatever stands there)."""
    for answer in answers:
        if not _is_map(answer):
            continue
        if answer.get("role") in ("tool", "function"):
            yield answer.get("tool_call_id"), answer
        for part in _items(answer.get("content")):
            if part.get("type") == "tool_result":
                yield part.get("tool_use_id"), part


def _result(answer: Mapping[str, Any]) -> Result:
    failed = answer.get("is_error") is True or answer.get("isError") is True
    text = ends(text_of(answer.get("content")), MAX_SAID)
    return Result(text, failed or answer.get("status") == "error")


def _paired(ids: Sequence[Any], answers: Sequence[Any]) -> Iterator[Result | None]:
    """For each id its result; calls without an id take the results without one, in order."""
    waiting: dict[str, deque[Mapping[str, Any]]] = {_id(call_id): deque() for call_id in ids}
    for answered, result in islice(_results(answers), MAX_PARTS):
        if _id(answered) in waiting:
            waiting[_id(answered)].append(result)
    for call_id in ids:
        found = waiting[_id(call_id)]
        yield _result(found.popleft()) if found else None


def _id(value: Any) -> str:
    return value if isinstance(value, str) else ""


# --- calls inside calls -------------------------------------------------------------------------

_WRAPPER = re.compile(r"tool|call|invoke|exec|batch|parallel|mcp|function|dispatch|use", re.I)
_NAMES = ("tool_name", "toolName", "tool", "name", "recipient_name", "function_name", "function")
_ARGUMENTS = ("params", "arguments", "args", "parameters", "input", "tool_input", "tool_args")


def _unwrapped(call: Call, depth: int = 0) -> Iterator[Call]:
    """The calls that a call holds, or itself."""
    inner = list(islice(_inside(call), MAX_CALLS)) if depth < _MAX_DEPTH else []
    if not inner:
        yield call
    for one in inner:
        yield from _unwrapped(one, depth + 1)


def _inside(call: Call) -> Iterator[Call]:
    if not _WRAPPER.search(call.name):
        return
    single = _nested(call.arguments)
    if single is not None:
        yield single
        return
    values = islice(call.arguments.values(), MAX_PARTS)
    entries = (entry for value in values for entry in _items(value))
    yield from filter(None, map(_nested, islice(entries, MAX_PARTS)))


def _nested(entry: Mapping[str, Any]) -> Call | None:
    """A call given as an object with a name and an object of arguments."""
    name = next((entry[key] for key in _NAMES if isinstance(entry.get(key), str)), None)
    if name is None:
        return None
    for key in _ARGUMENTS:
        given = entry.get(key)
        value = parsed(given) if isinstance(given, str) else given
        if isinstance(value, dict):
            return Call(name[:MAX_NAME], value)
    return None


# --- calls written as text ----------------------------------------------------------------------

_OBSERVED = re.compile(
    r"""(?ix) \A \s*+ (?: <(?:tool_response|tool_result|returncode|exception|output|function_results
        |execution_results|result|observation|environment)\b
      | observation:? \s | execution\s(?:result|logs)
      | error:[^\S\n]*+\n | \[ [\w-]{1,60} [ ] (?:for|result|tool)
      | \[? (?:the\s)? command\b | exit\s?code | the\sscript\sran\b
      | (?:new|current)\sterminal
      | (?:tool|command|execution|shell|code)(?:'s)?\s (?:result|output|response)
      | returncode | return\scode | last\soutput | EXECUTION )"""
)
_REFUSED = re.compile(
    r"""(?ix) \A \s*+ (?: error:[^\S\n]*+\n\s*+(?:error\s(?:executing|in)|code\sexecution|agent)
      | \#\s*\d+\sSEARCH/REPLACE\sblocks?\sfailed | <(?:returncode|exception)> | observation:? \s
      | the\sLLM\sdid\snot\sconform )"""
)
_SHELL_FENCES = frozenset("bash sh shell zsh console terminal mswea_bash_command".split())
_CODE_FENCES = frozenset("python py python3 tool_code".split())
_TAGS = re.compile(
    r"<(write_to_file|replace_in_file|apply_diff|insert_content|search_and_replace|write_file|edit_file"
    r"|new_file|delete_file|execute_command|run_command|read_file|search_files|list_files"
    r"|use_mcp_tool)>"
)
_ACTION = re.compile(r"^Action:[ \t]*+([\w. -]{1,80}+)\n++Action Input:[ \t]*", re.M)
_INVOKED = '<invoke name="'
# A client that applied what a message proposes, and says so for the user.
_APPLIED = re.compile(r"\s{0,8}I (?:committed the changes with git hash|updated the files\.)")
# The prompt after what a message's fence, without a language, was typed into.
_PROMPT = re.compile(r"\nbash-\$\s{0,8}\Z")


def _said(message: Mapping[str, Any]) -> str:
    """The text of an assistant message without reasoning that leads it."""
    text = text_of(message.get("content"))
    if text.lstrip().startswith("<think>"):
        text = text.partition("</think>")[2]
    return text[:MAX_SAID]


def _answer(answers: Sequence[Any]) -> Result | None:
    for answer in answers:
        if _is_map(answer) and answer.get("role") != "assistant":
            result = _result(answer)
            return result if result.text.strip() else None
    return None


def _spoken(said: str, answer: Result | None) -> Iterator[tuple[Call, Result | None]]:
    calls = list(islice(_told(said), MAX_CALLS))
    if not calls and answer is not None:
        calls = list(islice(_shown(said, answer.text), MAX_CALLS))
    yield from zip(calls, _shared(answer, len(calls)), strict=True)
    if not calls and answer is not None and _REFUSED.match(answer.text):
        yield Call("", {}), answer


def _shown(said: str, answer: str) -> Iterator[Call]:
    """Calls in a form that a reader may be shown as well: only the answer tells that they are."""
    if _APPLIED.match(answer) and "```" in said:
        yield Call("search_replace", {})
    elif _OBSERVED.match(answer):
        yield from _fenced(said)
    elif _PROMPT.search(answer[-20:]):
        for block in said.split("```", 2 * MAX_CALLS)[1::2]:
            yield _typed(block.lstrip())


def _typed(text: str) -> Call:
    """What is typed at a prompt, where `edit` and `create` are the agent's own."""
    if text.startswith(("edit ", "create ")):
        return Call("edit_file", {})
    return Call("bash", {"command": text})


def _shared(answer: Result | None, calls: int) -> list[Result | None]:
    """For each of so many calls its part of the answer, or the whole where it has no parts."""
    if answer is None or "<tool_response>" not in answer.text:
        return [answer] * calls
    parts = answer.text.split("<tool_response>", calls)[1:]
    texts = (part.partition("</tool_response>")[0] for part in parts)
    shares: list[Result | None] = [Result(text, answer.failed) for text in texts]
    return (shares + [None] * calls)[:calls]


def _told(said: str) -> Iterator[Call]:
    """Calls in a form that nobody writes to a reader."""
    if "<<<<<<< SEARCH" in said and ">>>>>>> REPLACE" in said:
        yield Call("search_replace", {})
    elif "<tool_call>" in said:
        for block in said.split("<tool_call>", MAX_CALLS)[1:]:
            yield from _block(block.partition("</tool_call>")[0])
    elif "<function=" in said:
        yield from _block(said)
    elif _INVOKED in said:
        for block in said.split(_INVOKED, MAX_CALLS)[1:]:
            name, _, rest = block.partition("</invoke>")[0].partition('">')
            yield Call(name[:MAX_NAME], _parameters(rest, '<parameter name="', '">'))
    elif '"action_input"' in said:
        body = parsed(said[said.find("{") : said.rfind("}") + 1])
        if _is_map(body) and isinstance(body.get("action"), str):
            yield Call(body["action"][:MAX_NAME], _arguments(body.get("action_input")))
    elif "Calling tools:" in said:
        for entry in _items(from_repr(said.rpartition("Calling tools:")[2])):
            yield _call(entry["function"] if _is_map(entry.get("function")) else entry)
    elif '"keystrokes"' in said:
        yield from _keystrokes(parsed(said[said.find("{") : said.rfind("}") + 1]))
    else:
        yield from _marked(said)


def _block(text: str) -> Iterator[Call]:
    body = parsed(text)
    if isinstance(body, dict):
        yield _call(body)
    for function in text.split("<function=", MAX_CALLS)[1:]:
        name, _, rest = function.partition("</function>")[0].partition(">")
        yield Call(name.strip()[:MAX_NAME], _parameters(rest, "<parameter=", ">"))
    if "<arg_key>" in text:
        name, _, rest = text.partition("<arg_key>")
        pairs = (part.partition("</arg_key>") for part in rest.split("<arg_key>", MAX_CALLS))
        yield Call(name.strip()[:MAX_NAME], {key: _argument(value) for key, _, value in pairs})


def _argument(text: str) -> str:
    return text.partition("<arg_value>")[2].partition("</arg_value>")[0]


def _parameters(text: str, opener: str, named: str) -> Mapping[str, str]:
    parts = text.split(opener, MAX_CALLS)[1:]
    pairs = (part.partition("</parameter>")[0].partition(named) for part in parts)
    return {key: value.strip("\n") for key, _, value in pairs}


def _keystrokes(body: Any) -> Iterator[Call]:
    typed = [c.get("keystrokes") for c in _items(body.get("commands"))] if _is_map(body) else []
    if typed:
        yield Call("bash", {"command": "".join(key for key in typed if isinstance(key, str))})


def _marked(said: str) -> Iterator[Call]:
    for tag in islice(_TAGS.finditer(said), MAX_CALLS):
        body = _until(said, tag.end(), f"</{tag[1]}>")
        given = {key: _element(body, key) for key in ("command", "tool_name", "arguments")}
        yield Call(tag[1], {key: value for key, value in given.items() if value} or {"path": ""})
    for action in islice(_ACTION.finditer(said), MAX_CALLS):
        yield Call(action[1].strip(), _arguments(_until(said, action.end(), "\nObservation:")))


def _element(text: str, name: str) -> str:
    return text.partition(f"<{name}>")[2].partition(f"</{name}>")[0]


def _until(text: str, start: int, closer: str) -> str:
    """The text from there to what closes it, or to its end; at most `MAX_BODY` characters."""
    return text[start : start + MAX_BODY].partition(closer)[0]


def _fenced(said: str) -> Iterator[Call]:
    """Fenced blocks and `<code>`: calls only where the answer shows that somebody ran them."""
    for block in said.split("```", 2 * MAX_CALLS)[1::2]:
        language, _, body = block.partition("\n")
        if language.strip().lower() in _SHELL_FENCES:
            yield Call("bash", {"command": body})
        elif language.strip().lower() in _CODE_FENCES:
            yield Call("python", {"code": body})
    for block in said.split("<code>", MAX_CALLS)[1:]:
        yield Call("python", {"code": block.partition("</code>")[0]})


_REPR = re.compile(
    r"""(?sx) '([^'\\]*+(?:\\.[^'\\]*+)*+)' | "([^"\\]*+(?:\\.[^"\\]*+)*+)"
    | ['"].* | \b(True|False|None)\b"""
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROL = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0"}
_WORDS = {"True": "true", "False": "false", "None": "null"}


def unescaped(text: str) -> str:
    """The text of a Python or JSON string literal, given without its quotes."""
    return _ESCAPE.sub(
        lambda m: chr(int(m[1] or m[2], 16)) if m[3] is None else _CONTROL.get(m[3], m[3]), text
    )


def from_repr(text: str) -> Any:
    """The value that Python's `repr` wrote, as JSON knows it; None where it cannot be read."""

    def as_json(match: re.Match[str]) -> str:
        if match[3]:
            return _WORDS[match[3]]
        quoted = match[1] if match[1] is not None else match[2]
        return match[0] if quoted is None else json.dumps(unescaped(quoted))

    return parsed(_REPR.sub(as_json, text, MAX_QUOTED)) if len(text) <= MAX_REPR else None


def _is_map(value: Any) -> bool:
    return isinstance(value, Mapping)


def _items(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; nothing of anything else."""
    return [e for e in value[:MAX_PARTS] if _is_map(e)] if isinstance(value, list) else []
