"""Which contract holds where, and which code reads each of its fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core import contract as core
from proxy.core.contract import (
    Asked,
    Contract,
    Pattern,
    Remedy,
    Requires,
    Table,
    Template,
    UserTurn,
    choose,
)

CONTRACTS = (
    Contract("by-path", hosts=("api.z.example/coding/*",)),
    Contract("by-model", hosts=("api.z.example",), models=("glm-5.3*",)),
    Contract("by-host", hosts=("api.z.example", "*.mirror.example")),
    Contract("engine", owned_by=("engine",), templated=True, rendered=("cache_salt",)),
    Contract("any-host", models=("*-special",)),
    Contract("by-name"),
)
MODEL = Template(
    "family", models=("*qwen3.6*",), user_turn=UserTurn.DROPS, system_first=True,
    preserve=msgspec.Raw(b'{"chat_template_kwargs":{}}'), rendered=("cache_salt", "effort"),
    requires=Requires.EVERY, warning="it hurts", default_policy="keep", source="its card",
)  # fmt: skip
TABLE = Table(CONTRACTS, (MODEL,), (Pattern("refused", Remedy.EMPTY),))


def chosen(url: str = "http://127.0.0.1:8000/v1", model: str = "m", **more: str) -> str:
    return choose(TABLE, Asked(url, model, **more)).contract.name


@pytest.mark.parametrize(
    ("url", "model", "name"),
    [
        ("https://api.z.example/coding/paas/v4", "glm-5.3", "by-path"),
        ("https://api.z.example/paas/v4", "GLM-5.3-flash", "by-model"),
        ("https://API.Z.example:8443/paas/v4", "glm-5", "by-host"),
        ("https://eu.mirror.example", "glm-5.3", "by-host"),
        ("https://mirror.example", "m", "unknown"),
        ("https://other.example/api.z.example", "m", "unknown"),
        ("https://other.example", "m-special", "any-host"),
        ("nowhere", "m", "unknown"),
        ("nowhere", "", "unknown"),
    ],
)
def test_the_first_row_whose_host_and_model_fit_counts(url: str, model: str, name: str) -> None:
    assert name == chosen(url, model)


def test_a_row_without_patterns_goes_by_its_name_alone() -> None:
    assert "by-name" == chosen(named="by-name")
    assert "unknown" == chosen()


def test_what_an_engine_calls_itself_counts_where_its_host_says_nothing() -> None:
    assert "engine" == chosen(owned_by="engine")
    assert "unknown" == chosen(owned_by="openai")
    assert "by-host" == chosen("https://api.z.example", owned_by="engine")


def test_a_name_counts_before_host_and_owner() -> None:
    assert "engine" == chosen("https://api.z.example", named="engine")
    assert "unknown" == chosen(named="no-such-row")


def test_a_row_for_all_models_of_a_provider_stands_for_the_provider() -> None:
    contracts = (
        Contract("new", hosts=("a.example",), models=("new-*",)),
        Contract("old", hosts=("a.example",), models=("old-*",)),
        Contract("provider", hosts=("a.example",)),
    )

    def named(name: str, model: str) -> str:
        asked = Asked("http://127.0.0.1", model, named=name)
        return choose(Table(contracts), asked).contract.name

    assert ["new", "old", "provider"] == [named("provider", m) for m in ("new-1", "old-1", "m")]
    assert "old" == named("old", "new-1")


def test_it_is_told_why() -> None:
    asked = Asked("https://api.z.example/paas", "glm-5.3")
    why = choose(TABLE, asked).why
    assert "host: api.z.example fits api.z.example, model: glm-5.3 fits glm-5.3*" == why
    assert "owned_by: engine fits engine" == choose(TABLE, Asked("x", "m", "engine")).why
    assert 'named: contract = "by-name"' == choose(TABLE, Asked("x", named="by-name")).why
    assert choose(TABLE, Asked("x")).why.startswith("no row fits")


def test_the_template_of_a_model_is_laid_over_who_renders_with_it() -> None:
    found = choose(TABLE, Asked("x", "Qwen/Qwen3.6-35B", "engine"))

    assert "engine" == found.contract.name
    assert "template family laid over it: model: Qwen/Qwen3.6-35B fits *qwen3.6*" in found.why
    assert (UserTurn.DROPS, Requires.EVERY, True) == (
        found.contract.user_turn, found.contract.requires, found.contract.system_first
    )  # fmt: skip
    assert ("cache_salt", "effort") == found.contract.rendered
    assert ("keep", "it hurts") == (found.contract.default_policy, found.contract.warning)
    assert found.contract.source.endswith("template family: its card")


def test_a_template_says_nothing_of_a_provider_that_renders_as_it_likes() -> None:
    found = choose(TABLE, Asked("https://api.z.example/paas", "qwen3.6-plus"))

    assert UserTurn.KEEPS is found.contract.user_turn
    assert "template" not in found.why


def test_what_is_not_known_gets_the_template_of_its_model() -> None:
    assert "keep" == choose(TABLE, Asked("x", "qwen3.6")).contract.default_policy


def test_a_template_without_a_word_leaves_what_the_contract_says() -> None:
    contract = Contract(
        "host", requires=Requires.EVERY, user_turn=UserTurn.STUB, system_first=True,
        default_policy="keep", warning="w", preserve=msgspec.Raw(b"{}"), rendered=("a",),
    )  # fmt: skip

    found = core.laid_over(contract, Template("bare"))

    assert contract == msgspec.structs.replace(found, source=contract.source)


def test_a_host_that_knows_its_own_way_of_keeping_is_not_given_the_template_s() -> None:
    own = msgspec.Raw(b'{"reasoning_history":"preserved"}')

    assert own == core.laid_over(Contract("host", preserve=own), MODEL).preserve
    assert MODEL.preserve == core.laid_over(Contract("host"), MODEL).preserve


def test_the_words_of_gateways_hold_everywhere_after_the_row_s_own() -> None:
    own = Contract("own", errors=(Pattern("mine", Remedy.ABSENT),))
    table = Table((own,), errors=TABLE.errors)

    found = choose(table, Asked("x", named="own")).contract

    assert ["mine", "refused"] == [pattern.error for pattern in found.errors]
    assert TABLE.errors == choose(table, Asked("x")).contract.errors


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=20))
def test_anything_gets_a_contract(url: str, model: str, owner: str) -> None:
    try:
        found = choose(TABLE, Asked(url, model, owner))
    except ValueError:
        return  # no URL: the configuration refuses it

    assert found.contract.name
    assert found.why


# What reads it

PENDING = frozenset[str]()
"""Fields that nothing acts on yet. It only ever shrinks."""
FOR_PEOPLE = frozenset({"name", "source", "date"})
"""Fields that are only told."""
_OF_CONTRACTS = frozenset({"contract", "_contract"})
_MERGES = frozenset({"laid_over", "with_words_of_all", "_with_settings"})
"""Functions that make one contract of two: to read a field there is not to act on it."""


def contract_reads(tree: ast.AST) -> Iterator[str]:
    """The attributes that are read off something that is called a contract."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name in _MERGES:
            continue
        if isinstance(node, ast.Attribute) and _called(node.value) in _OF_CONTRACTS:
            yield node.attr
        yield from contract_reads(node)


def _called(value: ast.expr) -> str:
    of = value.func if isinstance(value, ast.Call) else value
    return of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")


def read_fields() -> set[str]:
    package = Path(core.__file__).parent.parent
    found: set[str] = set()
    for file in package.rglob("*.py"):
        if file.parent.name != "commands":  # they tell people what is so
            found |= set(contract_reads(ast.parse(file.read_text(encoding="utf-8"))))
    return found


def test_every_field_is_read_by_code_that_acts_on_it() -> None:
    fields = {field.name for field in msgspec.structs.fields(Contract)}

    assert set() == fields - FOR_PEOPLE - PENDING - read_fields()


def test_what_is_pending_is_read_by_nothing_and_is_a_field() -> None:
    fields = {field.name for field in msgspec.structs.fields(Contract)}

    assert set() == PENDING & read_fields()
    assert fields > PENDING
