"""Dialects: a wire is what a contract says, and what a refusal has taught since."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core import dialect
from proxy.core.contract import UNKNOWN, Contract, Encoding, Remedy, Requires
from proxy.core.dialect import Wire
from proxy.core.verdict import Kind
from tests.core import test_form as forms


def test_a_wire_is_what_a_contract_says_unless_the_client_s_own_carriers_are_to_stay() -> None:
    contract = Contract(
        "c", reads=("reasoning",), writes="reasoning", encoding=Encoding.ABSENT,
        requires=Requires.EVERY, seals_may_go=True,
    )  # fmt: skip

    assert Wire(
        ("reasoning",), "reasoning", Encoding.ABSENT, Requires.EVERY, True, True, False
    ) == dialect.wire_of(contract, as_sent=False, restores=True, repairs=False)
    assert () == dialect.wire_of(contract, as_sent=True, restores=True, repairs=True).reads
    absent = replace(contract, requires=Requires.ABSENCE)
    assert dialect.wire_of(absent, as_sent=False, restores=False, repairs=False).refuses
    assert dialect.wire_of(UNKNOWN, as_sent=False, restores=False, repairs=False).is_plain


@pytest.mark.parametrize(
    ("remedy", "raw", "expected"),
    [
        (Remedy.EMPTY, forms.assistant(), {"reasoning_content": ""}),
        (Remedy.RESTORE, forms.assistant(), {"reasoning_content": "why \n"}),
        (Remedy.ABSENT, forms.assistant(reasoning="x"), {}),
        (Remedy.KEEP, forms.assistant(reasoning="x"), {"reasoning": "x"}),
    ],
)
def test_a_refusal_is_mended(remedy: Remedy, raw: bytes, expected: dict[str, Any]) -> None:
    wire = dialect.mended(Wire(), remedy)
    stands = Kind.DROP if remedy is Remedy.KEEP else Kind.KEEP

    out = json.loads(forms.left(raw, wire.kind(stands), forms.WAS, wire))

    assert {"role": "assistant", "content": "said", **expected} == out
    assert wire == dialect.mended(wire, remedy)
    assert wire != Wire()


@given(forms.wires, st.sampled_from(Remedy), st.sampled_from(Remedy))
def test_the_last_refusal_holds(wire: Wire, first: Remedy, last: Remedy) -> None:
    mended = dialect.mended(dialect.mended(wire, first), last)

    assert mended == dialect.mended(mended, last)
    assert mended.refuses is (last is Remedy.ABSENT)
    assert mended.kind(Kind.KEEP) is (Kind.DROP if last is Remedy.ABSENT else Kind.KEEP)


@given(forms.wires, forms.wires)
def test_a_wire_is_the_same_after_rest(wire: Wire, other: Wire) -> None:
    assert wire == dialect.unpacked(dialect.packed(wire), other)
    assert other == dialect.unpacked(b'{"encoding":"later"}', other)


@given(forms.wires, forms.kinds)
def test_what_is_refused_goes_and_what_may_not_go_stays(wire: Wire, stands: Kind) -> None:
    expected = Kind.KEEP if wire.keeps else stands

    assert (Kind.DROP if wire.refuses else expected) == wire.kind(stands)
