"""Numbers are read exactly, names are compared as the engine compares them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError

from dpsql.policy import load, normalize_name
from dpsql.policy.domain import format_number, parse_number
from dpsql.policy.names import NameMap


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (3, Fraction(3)),
        (0.1, Fraction(1, 10)),
        (1e-7, Fraction(1, 10**7)),
        ("1e-7", Fraction(1, 10**7)),
        ("1E+2", Fraction(100)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("1/3", Fraction(1, 3)),
        (Decimal("0.1"), Fraction(1, 10)),
        (Fraction(2, 3), Fraction(2, 3)),
        ("-0", Fraction(0)),
        ("0e999999", Fraction(0)),
        ("0.1000000000000000000000001", Fraction(1, 10) + Fraction(1, 10**25)),
    ],
)
def test_number_has_its_exact_value(written: object, number: Fraction) -> None:
    """0.1 is a tenth, digits past a double's precision count."""
    assert parse_number(written) == number


@pytest.mark.parametrize(
    ("written", "code"),
    [
        (True, "not_a_number"),
        (None, "not_a_number"),
        ("", "not_a_number"),
        ("1 000", "not_a_number"),
        ("٣", "not_a_number"),
        ("1e", "not_a_number"),
        ([1], "not_a_number"),
        (float("nan"), "non_finite"),
        (float("-inf"), "non_finite"),
        (Decimal("sNaN"), "non_finite"),
        ("Infinity", "non_finite"),
        ("1/0", "non_finite"),
        (10**401, "number_size"),
        ("1e401", "number_size"),
        ("1e-401", "number_size"),
        (Decimal("1e999999"), "number_size"),
        (Fraction(10**5000), "number_size"),
    ],
)
def test_invalid_numbers_are_refused(written: object, code: str) -> None:
    """Truth values, special values, other text and numbers that would fill the memory have a code each."""
    with pytest.raises(PydanticCustomError) as caught:
        parse_number(written)
    assert (caught.value.context or {})["problems"][0].code == code


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_keeps_its_shortest_text(number: float) -> None:
    """The fraction of a float equals the fraction of its printed text, and rounds back to the float."""
    assert parse_number(number) == parse_number(repr(number))
    assert float(parse_number(number)) == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=12) | st.fractions())
def test_showing_and_reading_return_the_number(number: Decimal | Fraction) -> None:
    """What a message shows of a number of ordinary length reads as that number."""
    shown = format_number(parse_number(number))
    assert "…" in shown or parse_number(shown) == Fraction(number)


@given(st.decimals(min_value="0.0000001", max_value="1000", places=9))
def test_yaml_and_text_agree(number: Decimal) -> None:
    """An epsilon in YAML is the same fraction as its text, in plain and in exponent form."""
    for text in (f"{number:f}", f"{number:e}"):
        policy = load(
            f"version: 1\nprivacy_unit: p\nbudget: {{epsilon: {text}}}\ntables: {{t: {{unit: row}}}}\n"
        )
        assert policy.budget.epsilon == Fraction(number)


@given(st.text(), st.text())
def test_fold_is_the_lower_case_of_ascii_only(one: str, other: str) -> None:
    """Two names fold together exactly when their bytes do under ASCII lower case, as in DuckDB."""
    lowered = [name.encode("utf-8", "surrogatepass").lower() for name in (one, other)]
    assert (normalize_name(one) == normalize_name(other)) == (lowered[0] == lowered[1])
    assert normalize_name(one.swapcase() if one.isascii() else one) == normalize_name(one)


def test_names_that_differ_beyond_ascii_are_different() -> None:
    """`straße` does not stand for `strasse`, nor the Kelvin sign for k: they are other tables."""
    names = NameMap({"straße": 1, "K": 2})
    assert names.get("STRAßE") == 1
    assert names.get("strasse") is None
    assert names.get("\u212a") is None


def test_a_name_map_is_a_value() -> None:
    """Equal maps hash alike, nothing can be set, and equality respects the declared spelling."""
    one, same = NameMap({"a": 1, "B": 2}), NameMap({"B": 2, "a": 1})
    assert (one, hash(one)) == (same, hash(same))
    assert list(one) == ["a", "B"]
    assert one != NameMap({"A": 1, "B": 2})
    with pytest.raises(TypeError):
        one["a"] = 3  # type: ignore[index]
