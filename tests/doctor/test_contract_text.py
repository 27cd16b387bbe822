"""The contract that is printed: TOML that the loader takes and that says what was found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace as changed

from proxy import providers
from proxy.core.contract import (
    UNKNOWN,
    Affinity,
    Asked,
    CacheRule,
    Contract,
    Drops,
    Encoding,
    Pattern,
    Remedy,
    Requires,
    Reuse,
    StreamUsage,
    UserTurn,
    choose,
)
from proxy.doctor.answers import Answer, Listed
from proxy.doctor.contract_text import Examined, contract_of, known_before, toml_of, unknowns
from proxy.doctor.findings import Findings, conclude
from proxy.doctor.prompts import Dialect
from proxy.doctor.record import Record

EXAMINED = Examined("https://api.example.com/v1", "some/model-1", "2026-11-30")
NOTHING = conclude(Record(Dialect("m"), Listed(Answer()), Answer()), keyed=False)


def loaded(tmp_path: Path, toml: str, url: str, model: str) -> Contract:
    """What the proxy would go by with this TOML as its own file."""
    file = tmp_path / "own.toml"
    file.write_text(toml)
    table = providers.load(file)
    found = choose(table, Asked(url, model)).contract
    return changed(found, errors=found.errors[: len(found.errors) - len(table.errors)])


def everything() -> Contract:
    return Contract(
        "x", hosts=("api.example.com",), models=("m[*]",), reads=("reasoning", "think"),
        writes="reasoning", drops=Drops.NEVER, encoding=Encoding.ABSENT, seals_may_go=True,
        requires=Requires.EVERY, user_turn=UserTurn.STUB,
        preserve=msgspec.Raw(b'{"thinking":{"keep":"all","a b":[1,2.5,true]},"empty":{}}'),
        system_first=True, rendered=("effort",), cache=CacheRule(Reuse.PROMPT, 64, 1024, 300.0),
        reports_cache=False, usage_hint='say "yes"', stream_usage=StreamUsage.REFUSED,
        errors=(
            Pattern(r"a\.b 'c' \d+", Remedy.EMPTY), Pattern(r"d\S+", Remedy.RESTORE),
            Pattern("\x7f\u202e plain", Remedy.KEEP),
        ),
        affinity=Affinity(body="prompt_cache_key"), default_policy="keep", warning="careful\nhere",
        source="a test", date="2026-11-30",
    )  # fmt: skip


def test_every_key_comes_back_as_it_was(tmp_path: Path) -> None:
    contract = everything()
    toml = toml_of(contract, [])
    back = loaded(tmp_path, toml, "https://api.example.com", "m*")

    assert contract == changed(back, preserve=contract.preserve)
    assert back.preserve is not None
    assert contract.preserve is not None
    assert msgspec.json.decode(contract.preserve) == msgspec.json.decode(back.preserve)


def test_defaults_are_not_written() -> None:
    assert '[[contract]]\nname = "x"\n' == toml_of(Contract("x"), [])


def test_no_cache_has_no_block(tmp_path: Path) -> None:
    toml = toml_of(Contract("x", hosts=("h",), cache=CacheRule(Reuse.NONE)), [])

    assert 'cache = { reuse = "none" }' in toml
    assert CacheRule(Reuse.NONE) == loaded(tmp_path, toml, "http://h", "m").cache


def test_what_was_not_found_out_is_a_comment() -> None:
    left = unknowns(NOTHING)

    assert {"reads", "writes", "requires", "cache", "user_turn"} < set(left)
    assert toml_of(Contract("x"), left).endswith(f"# not found out: {', '.join(left)}\n")


def found(**values: object) -> Findings:
    """Findings with some values known."""
    known = {
        name: replace(getattr(NOTHING, name), value=value)
        for name, value in values.items()
        if name != "rule"
    }
    return replace(NOTHING, **known, rule=values.get("rule"))  # type: ignore[arg-type]


def test_what_was_found_stands_over_what_was_known() -> None:
    known = changed(everything(), name="known", templated=True)
    rule = CacheRule(Reuse.GENERATED, 16)
    contract = contract_of(
        found(reads=("reasoning_content",), user_turn=UserTurn.KEEPS, rule=rule,
              requires=Requires.NOTHING, reports_cache=True),
        EXAMINED,
        known,
    )  # fmt: skip

    assert ("reasoning_content",) == contract.reads
    assert UserTurn.KEEPS is contract.user_turn
    assert Requires.NOTHING is contract.requires
    assert CacheRule(Reuse.GENERATED, 16, 0, 300.0) == contract.cache
    assert (True, "") == (contract.reports_cache, contract.usage_hint)
    assert ("known-some-model-1", ("api.example.com",), ("some/model-1",)) == (
        contract.name, contract.hosts, contract.models,
    )  # fmt: skip
    assert not contract.templated


def test_what_was_not_asked_stays_as_it_was_known() -> None:
    known = everything()
    contract = contract_of(NOTHING, EXAMINED, known)

    for key in ("affinity", "preserve", "default_policy", "warning", "rendered", "cache", "reads"):
        assert getattr(known, key) == getattr(contract, key)


def test_a_history_without_reasoning_that_was_taken_does_not_make_single_steps_legal() -> None:
    known = Contract("known", drops=Drops.ALL_OR_NOTHING)

    assert Drops.ALL_OR_NOTHING is contract_of(found(drops=Drops.ANY), EXAMINED, known).drops
    assert Drops.NEVER is contract_of(found(drops=Drops.NEVER), EXAMINED, known).drops


def test_of_an_unknown_upstream_the_contract_is_named_after_its_host() -> None:
    contract = contract_of(NOTHING, EXAMINED, UNKNOWN)

    assert "api.example.com-some-model-1" == contract.name
    assert "lethe doctor, api.example.com" == contract.source


@pytest.mark.parametrize(
    ("url", "model", "owner", "name"),
    [
        ("http://127.0.0.1:8080", "m", "llamacpp", "llama.cpp"),
        ("https://api.deepseek.com", "deepseek-v4-pro", "", "deepseek-v4"),
        ("http://127.0.0.1:8080", "m", "", "unknown"),
    ],
)
def test_what_is_known_before_is_the_table_s_row(
    url: str, model: str, owner: str, name: str
) -> None:
    table = providers.load()
    known = known_before(table, Examined(url, model, "2026-11-30"), owner)

    assert name == known.name
    row = table.named(name)
    assert (row.errors if row else ()) == known.errors


@pytest.mark.parametrize("model", ["m", "a/b:c", "we*ird?[x]", "x" * 200])
def test_what_is_printed_is_chosen_for_that_model_alone(tmp_path: Path, model: str) -> None:
    examined = replace(EXAMINED, model=model)
    toml = toml_of(contract_of(NOTHING, examined, UNKNOWN), [])
    mine = loaded(tmp_path, toml, EXAMINED.upstream, model)

    assert "lethe doctor, api.example.com" == mine.source
    assert mine != loaded(tmp_path, toml, EXAMINED.upstream, model + "2")
