"""What a provider generated, as far as clients lose or alter it on the way back."""

from __future__ import annotations

import msgspec


class Reply(msgspec.Struct, frozen=True, gc=False):
    """One reply. `reasoning` is its text as it was generated, `carrier` the field it came in (empty
    where there was none); `details` is the raw JSON of a `reasoning_details` list, empty without
    one. `arguments` are the argument texts of its tool calls, in order.
    """

    carrier: str
    reasoning: str
    details: bytes = b""
    arguments: tuple[str, ...] = ()
