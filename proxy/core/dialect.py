"""How reasoning is written for one upstream and model: in which carriers, and what in its place.

A wire is what a contract and the settings make of it, and what a refusal has taught since. It is
pinned with a conversation, so it is read again after any rest.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from proxy.core.contract import Contract, Encoding, Remedy, Requires
from proxy.core.verdict import Kind


class Wire(msgspec.Struct, frozen=True):
    """How reasoning is written for one upstream and model. It is pinned with a conversation.

    `reads` are the carriers that are read there, the preferred one first; empty: whichever came,
    and for what is put back that in which replies come, `writes`.
    `restores`: what a client lost is put back. `repairs`: arguments leave as they were generated.
    `refuses`: reasoning is an error there, whatever the verdict. `keeps`: taking it out is one.
    """

    reads: tuple[str, ...] = ()
    writes: str = ""
    encoding: Encoding = Encoding.EMPTY
    requires: Requires = Requires.NOTHING
    seals_may_go: bool = False
    restores: bool = False
    repairs: bool = False
    refuses: bool = False
    keeps: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether every message leaves as it came, or less its reasoning."""
        plain = self.encoding is Encoding.EMPTY and self.requires is Requires.NOTHING
        odd = self.reads or self.seals_may_go or self.refuses or self.keeps or self.looks_back
        return plain and not odd

    @property
    def looks_back(self) -> bool:
        """Whether the replies that messages echo are of use."""
        return self.restores or self.repairs

    def kind(self, standing: Kind) -> Kind:
        """What is carried out there of what stands."""
        if self.refuses:
            return Kind.DROP
        return Kind.KEEP if self.keeps else standing


def wire_of(contract: Contract, as_sent: bool, restores: bool, repairs: bool) -> Wire:
    """What a contract and the settings make of it; `as_sent` keeps the client's own carriers."""
    return Wire(
        () if as_sent else contract.reads, contract.writes, contract.encoding, contract.requires,
        contract.seals_may_go, restores, repairs, contract.requires is Requires.ABSENCE,
    )  # fmt: skip


def mended(wire: Wire, remedy: Remedy) -> Wire:
    """The wire after a request was refused with a 400 that wants this. The last refusal holds."""
    if remedy is Remedy.KEEP:
        return replace(wire, keeps=True, refuses=False)
    if remedy is Remedy.ABSENT:
        absent = replace(wire, encoding=Encoding.ABSENT, requires=Requires.NOTHING)
        return replace(absent, restores=False, refuses=True, keeps=False)
    empty = replace(wire, encoding=Encoding.EMPTY, requires=Requires.EVERY, refuses=False)
    return replace(empty, restores=True) if remedy is Remedy.RESTORE else empty


def packed(wire: Wire) -> bytes:
    """As it is pinned."""
    return msgspec.json.encode(wire)


def unpacked(raw: bytes, otherwise: Wire) -> Wire:
    """A pinned one; `otherwise` where a later version wrote what is not known here."""
    try:
        return msgspec.json.decode(raw, type=Wire)
    except msgspec.MsgspecError:
        return otherwise
