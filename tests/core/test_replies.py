"""Replies: a message echoes one where their calls say the same."""

from __future__ import annotations

from proxy.core.replies import Reply, echoes


def test_a_reply_that_called_otherwise_is_another_one() -> None:
    """Two samples of one history may bear the same ids: neither gets what the other thought."""
    call = {"id": "functions.bash:0", "type": "function"}
    messages = [
        {"tool_calls": [{**call, "function": {"name": "bash", "arguments": text}}]}
        for text in ('{"cmd":"ls 1"}', '{"cmd": "ls 1"}', '{"cmd":"ls 2"}')
    ]
    reply = Reply("reasoning_content", "why", b"", ('{"cmd":"ls 1"}',))

    assert [True, True, False] == [echoes(message, reply) for message in messages]
    assert echoes({"tool_calls": messages[0]["tool_calls"] * 2}, reply)
    assert echoes({}, reply)
