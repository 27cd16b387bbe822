"""The price sheets that `--prices` names: which name finds what, and what each is called."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from proxy.commands import sheets
from proxy.errors import SettingsError

TODAY = date(2026, 11, 30)
ROW = '[[price]]\nmodel = "{}"\ninput = {}\noutput = 10\n'


def names(*given: str | Path) -> list[str]:
    return [sheet.name for sheet in sheets.priced([str(name) for name in given], TODAY)]


def file(folder: Path, name: str, *rows: tuple[str, int]) -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(ROW.format(*row) for row in rows))
    return path


def test_a_bare_name_finds_the_one_provider_that_has_it() -> None:
    assert sheets.priced(["google/gemini-2.5-pro"], TODAY)[0].rates == (
        sheets.priced(["gemini-2.5-pro"], TODAY)[0].rates
    )


def test_a_bare_name_is_enough_where_all_that_have_it_charge_the_same() -> None:
    (bare,) = sheets.priced(["gpt-5"], TODAY)

    assert "gpt-5" == bare.name
    assert sheets.priced(["openai/gpt-5"], TODAY)[0].rates == bare.rates


def test_a_bare_name_takes_a_day_too() -> None:
    (bare,) = sheets.priced(["gpt-5@2026-01-31"], TODAY)

    assert "gpt-5@2026-01-31" == bare.name


def test_a_bare_name_with_several_prices_says_how_to_choose() -> None:
    with pytest.raises(SettingsError, match="gpt-oss") as caught:
        sheets.priced(["gpt-oss-120b"], TODAY)

    assert "does not cost the same at" in str(caught.value)
    assert "--prices azure/gpt-oss-120b" in str(caught.value)


def test_a_name_that_nobody_has_says_all_that_is_wanted() -> None:
    with pytest.raises(SettingsError) as caught:
        sheets.priced(["nobody"], TODAY)

    for part in ("'nobody'", "sonnet-5.5", "PROVIDER/NAME", "lethe price --model", "[[price]]"):
        assert part in str(caught.value)


def test_a_row_for_every_model_is_called_by_its_file(tmp_path: Path) -> None:
    one = file(tmp_path, "cheap.toml", ("*", 1))
    two = file(tmp_path, "dear.toml", ("*", 9))
    found = sheets.priced([str(one), str(two)], TODAY)

    assert [("cheap", Decimal(1)), ("dear", Decimal(9))] == [
        (sheet.name, sheet.rates.input.base) for sheet in found
    ]


def test_rows_of_one_name_in_two_files_bear_the_file_s(tmp_path: Path) -> None:
    one = file(tmp_path, "old.toml", ("gpt-5", 1), ("mine", 1))
    two = file(tmp_path, "new.toml", ("gpt-5", 2))

    assert ["old: gpt-5", "mine", "new: gpt-5"] == names(one, two)


def test_a_row_that_is_called_as_a_built_in_sheet_bears_its_file_s(tmp_path: Path) -> None:
    own = file(tmp_path, "own.toml", ("sonnet-5.5", 1))

    assert ["sonnet-5.5", "own: sonnet-5.5"] == names("sonnet-5.5", own)


def test_rows_for_two_upstreams_are_two_sheets(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    rows = (ROW.format("*", 1) + f'upstream = "{name}"\n' for name in ("a", "b"))
    own.write_text("".join(rows))

    assert ["own: * at a", "own: * at b"] == names(own)


@pytest.mark.parametrize("second", ["own.toml", "other/own.toml"])
def test_what_cannot_be_told_apart_is_refused_with_what_to_do(tmp_path: Path, second: str) -> None:
    one = file(tmp_path, "own.toml", ("*", 1))
    two = file(tmp_path, second, ("*", 1))

    with pytest.raises(SettingsError, match="the same name came twice") as caught:
        names(one, two)

    assert "'own: *'" in str(caught.value)
    assert "rename" in str(caught.value)
