"""What each cause means, in a sentence that a person who did not write this can use."""

from __future__ import annotations

from typing import NamedTuple


class Meaning(NamedTuple):
    title: str
    advice: str
    """What to do, for an account that has no advice of its own."""


CAUSES: dict[str, Meaning] = {
    # What happened to the prefix and broke nothing.
    "cold_start": Meaning("Nothing of this was sent before", ""),
    "extended": Meaning("It only grew", ""),
    "retry": Meaning("The same request again", ""),
    "rewind": Meaning("It went back to an earlier point", ""),
    "fork": Meaning("It went on otherwise from an earlier point", ""),
    "side_request": Meaning("A request beside the conversation: a title, a summary", ""),
    # Breaks.
    "model_changed": Meaning(
        "Another model", "Each model has a cache of its own: stay with one within a conversation."
    ),
    "params_changed": Meaning(
        "A parameter that is rendered into the prompt changed",
        "Keep tool_choice, response_format and reasoning settings the same within a conversation.",
    ),
    "tools_changed": Meaning(
        "The tools changed", "Send all tools from the first request on, and always the same."
    ),
    "tools_reordered": Meaning(
        "The tools came in another order", "Sort the tools, so that they come in the same order."
    ),
    "system_changed": Meaning(
        "The system prompt changed",
        "Move what changes (a clock, a status) from the system prompt to the newest message.",
    ),
    "message_edited": Meaning(
        "An earlier message was edited", "Append a correction rather than change what was sent."
    ),
    "message_inserted": Meaning(
        "A message was put between earlier ones", "Append it at the end instead."
    ),
    "messages_dropped": Meaning(
        "Earlier messages were taken out",
        "Take out rarely and much at once: each time rebuilds the rest.",
    ),
    "compaction": Meaning(
        "Earlier messages were replaced by a summary",
        "Compaction rebuilds the prompt once; raise its threshold if it comes often.",
    ),
    "reasoning_stripped": Meaning(
        "The client took out reasoning that it had sent",
        "Let the client send reasoning back unchanged, and leave forgetting to the policy.",
    ),
    "reasoning_changed": Meaning(
        "The client changed reasoning that it had sent", "Send reasoning back as it came."
    ),
    "reserialized": Meaning(
        "An earlier message was written otherwise, and says the same",
        "Send the stored text of a message rather than serialise it anew.",
    ),
    "self": Meaning(
        "The proxy changed what it had sent",
        "A retroactive policy (keep_latest) does this by design; an append-only one does not, but "
        "that reasoning it put back is lost with the ledger's store.",
    ),
    # Replies that read less than they could have.
    "ttl_expired": Meaning(
        "The provider's cache had run out",
        "The pause was longer than the provider keeps its cache.",
    ),
    "below_minimum": Meaning(
        "Too short to be cached", "Nothing to do: it is cached once it is longer."
    ),
    "template": Meaning(
        "The model's chat template rewrote earlier turns",
        "The template drops old reasoning at a new user message; no client can avoid it.",
    ),
    "provider_miss": Meaning(
        "The provider did not use its cache",
        "An affinity key (prompt_cache_key, a session header) keeps a conversation on one machine.",
    ),
    "upstream_switched": Meaning(
        "It went to another upstream", "Keep a conversation on one upstream."
    ),
    "unreported": Meaning(
        "The provider does not say what it read", "Cache reads of this upstream are unknown."
    ),
}
_UNKNOWN = Meaning("", "")


def meaning(cause: str) -> Meaning:
    return CAUSES.get(cause, _UNKNOWN)


def words(cause: str) -> str:
    """The name of a cause as people write it."""
    return cause.replace("_", " ")
