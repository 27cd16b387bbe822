"""Conclusions from histories: which carrier is read, which fields are refused, and with what words.

Reasoning is looked for by counting: a long unique text is put into one carrier of one message, and
the prompt is longer by it where that carrier is read.
"""

from __future__ import annotations

from proxy.core.contract import Drops, Encoding, Pattern, Remedy, Requires
from proxy.doctor import prompts
from proxy.doctor.answers import Answer
from proxy.doctor.conclusion import Conclusion, unknown
from proxy.doctor.record import Record
from proxy.doctor.wording import pattern_of
from proxy.page.plain import noun


def came_in(record: Record) -> str:
    """The carrier that replies come in, whole or streamed; empty where none was seen."""
    carriers = (*record.first.seen.carriers, *record.streamed.seen.carriers)
    return carriers[0] if carriers else ""


def reads(record: Record) -> Conclusion[tuple[str, ...]]:
    """The carriers whose text the prompt contains, the one that replies come in first.

    `think` stands in the content, which every prompt contains: it counts where replies come so.
    """
    what, base = "reasoning is read from", _base(record)
    if base is None:
        return unknown(what, uncounted(record))
    grown = {name: _grown_by(record.history(name), base) for name in prompts.CARRIERS}
    found = [name for name in prompts.CARRIERS if 2 * grown[name] >= prompts.THOUGHT_WORDS]
    if "think" in found and came_in(record) != "think":
        found.remove("think")
    found.sort(key=lambda name: name != came_in(record))
    told = ", ".join(f"{name} {_told(record, name, grown[name])}" for name in prompts.CARRIERS)
    how = f"{prompts.THOUGHT_WORDS} unique words in each: {told}"
    return Conclusion(what, tuple(found), ", ".join(found) or "no field", how)


def _base(record: Record) -> int | None:
    """Prompt tokens of the history without reasoning."""
    prompt = record.history("absent").prompt
    return record.history("empty").prompt if prompt is None else prompt


def uncounted(record: Record) -> str:
    if record.first.ok and record.first.prompt is None:
        return "usage is not reported, so nothing can be counted"
    return record.history("absent").why


def _grown_by(answer: Answer, base: int) -> int:
    return 0 if answer.prompt is None else answer.prompt - base


def _told(record: Record, name: str, grown: int) -> str:
    answer = record.history(name)
    if answer.ok:
        return f"{grown:+d} {noun(grown, 'token')}"
    return "refused" if answer.refused else "unknown"


def preferred(record: Record) -> str:
    """The carrier to send reasoning in; empty where none is read."""
    found = reads(record).value
    return found[0] if found else ""


def string_carrier(record: Record) -> str:
    """The string carrier to try an empty text in."""
    strings = (preferred(record), came_in(record), *prompts.STRINGS)
    return next(name for name in strings if name in prompts.STRINGS)


def empty_carrier(record: Record) -> str:
    """The string carrier that stays, empty, where reasoning is dropped; none where it need not."""
    if not record.history("empty").ok:
        return ""
    wanted = preferred(record) in prompts.STRINGS or record.history("absent").refused
    return string_carrier(record) if wanted else ""


def requires(record: Record) -> Conclusion[Requires]:
    absent, empty = record.history("absent"), record.history("empty")
    what, name = "field missing", string_carrier(record)
    if absent.ok:
        how = "a tool call without any reasoning field was answered"
        return Conclusion(what, Requires.NOTHING, "accepted", how)
    if not absent.refused or not empty.ok:
        return unknown(what, f"without the field: {absent.why}; with it empty: {empty.why}")
    how = f'without {name}: {absent.why}; with "": answered'
    if record.history("plain").refused:
        return Conclusion(what, Requires.EVERY, "refused on every assistant message", how)
    return Conclusion(what, Requires.TOOL_CALLS, "refused on tool calls", how)


def encoding(record: Record) -> Conclusion[Encoding]:
    what, name, empty = "field empty", string_carrier(record), record.history("empty")
    if empty.ok:
        same = (
            "renders like a missing one" if empty.prompt == record.history("absent").prompt else ""
        )
        how = f'{name} = "" was answered' + (f", {same}" if same else "")
        return Conclusion(what, Encoding.EMPTY, "accepted", how)
    if empty.refused and record.history("absent").ok:
        return Conclusion(what, Encoding.ABSENT, "refused", f'{name} = "": {empty.why}')
    return unknown(what, f'{name} = "": {empty.why}')


def null(record: Record) -> Conclusion[bool]:
    answer, name = record.history("null"), string_carrier(record)
    if answer.ok:
        return Conclusion("field null", True, "accepted", f"{name} = null was answered")
    if answer.refused:
        return Conclusion("field null", False, "refused", f"{name} = null: {answer.why}")
    return unknown("field null", f"{name} = null: {answer.why}")


def drops(record: Record) -> Conclusion[Drops]:
    what = "reasoning may go"
    if record.history("absent").ok or record.history("empty").ok:
        return Conclusion(what, Drops.ANY, "from any step", "a history without it was answered")
    sent = [name for name in prompts.CARRIERS if record.history(name).ok]
    if sent and record.history("absent").refused and record.history("empty").refused:
        how = f"answered with {', '.join(sent)}, refused without and with it empty"
        return Conclusion(what, Drops.NEVER, "never", how)
    return unknown(what, record.history("absent").why)


def errors(record: Record) -> tuple[Pattern, ...]:
    """A refusal's wording and what mends it, where a refusal was seen and its remedy too."""
    absent, empty = record.history("absent"), record.history("empty")
    if absent.refused and absent.said:
        remedy = Remedy.EMPTY if empty.ok else Remedy.RESTORE
        mended = empty.ok or drops(record).value is Drops.NEVER
        return (Pattern(pattern_of(absent.said), remedy),) if mended else ()
    sent = [record.history(name) for name in (*prompts.STRINGS, "empty")]
    said = {answer.said: None for answer in sent if answer.refused and answer.said}
    return tuple(Pattern(pattern_of(it), Remedy.ABSENT) for it in said) if absent.ok else ()
