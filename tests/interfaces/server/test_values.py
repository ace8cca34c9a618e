"""Values on the wire: encoded values are decoded back in both formats, and invalid ones are refused."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speeds import examples

from dpsql.interfaces.server.protocol.errors import StatementError
from dpsql.interfaces.server.protocol.values import (
    BOOL,
    DATE,
    FLOAT8,
    INT8,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    decode_value,
    encode_value,
    get_oid,
    to_text,
)

KINDS: dict[int, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT8: st.integers(-(2**63), 2**63 - 1),
    FLOAT8: st.floats(allow_nan=False),
    TEXT: st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))),
    DATE: st.dates(),
    TIMESTAMP: st.datetimes(),
    NUMERIC: st.integers(-(10**60), 10**60),
}


@pytest.mark.parametrize("oid", KINDS)
@pytest.mark.parametrize("code", [0, 1])
@settings(max_examples=examples(300))
@given(data=st.data())
def test_encoded_values_are_decoded_back(oid: int, code: int, data: st.DataObject) -> None:
    value = data.draw(KINDS[oid])
    written = encode_value(value, oid, code)
    assert decode_value(written, oid, code) == value
    assert encode_value(None, oid, code) is None
    assert decode_value(None, oid, code) is None


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("0", struct.pack("!hhHH", 0, 0, 0, 0)),
        ("1", struct.pack("!hhHHH", 1, 0, 0, 0, 1)),
        ("-12345.678", struct.pack("!hhHHHHH", 3, 1, 0x4000, 3, 1, 2345, 6780)),
        ("0.0001", struct.pack("!hhHHH", 1, -1, 0, 4, 1)),
        ("1E+8", struct.pack("!hhHHH", 1, 2, 0, 0, 1)),
    ],
)
def test_numeric_is_written_as_postgresql_does(text: str, groups: bytes) -> None:
    assert encode_value(Decimal(text), NUMERIC, 1) == groups
    assert decode_value(groups, NUMERIC, 1) == pytest.approx(float(text), rel=1e-15)


@settings(max_examples=examples(1_000))
@given(
    st.binary(max_size=20), st.sampled_from([*KINDS, 0, 21, 23, 26, 700, 1184, 99]), st.sampled_from([0, 1])
)
def test_any_bytes_are_a_value_or_an_error(data: bytes, oid: int, code: int) -> None:
    try:
        decode_value(data, oid, code)
    except StatementError as refused:
        assert refused.failure.sqlstate in {"22P02", "0A000"}  # noqa: PT017  (either may happen)


def test_a_value_beyond_its_binary_format_has_a_hint() -> None:
    """As a day that Python's calendar does not hold, which is a text."""
    assert encode_value("10000-01-01", DATE, 0) == b"10000-01-01"
    with pytest.raises(StatementError) as refused:
        encode_value("10000-01-01", DATE, 1)
    assert "free" in str(refused.value.failure.hint)


def test_lists_and_maps_are_written_as_postgresql_writes_them() -> None:
    assert encode_value([1, None], get_oid("BIGINT[]"), 0) == b"{1,NULL}"
    head = struct.pack("!iiIii", 1, 1, INT8, 2, 1)
    assert encode_value([1, None], get_oid("BIGINT[]"), 1) == head + struct.pack("!iqi", 8, 1, -1)
    assert encode_value({dt.date(2024, 1, 1): 3}, get_oid("MAP(DATE, BIGINT)"), 0) == b'{"2024-01-01": 3}'
    assert to_text(["", "null", "a,b", "{"]) == '{"","null","a,b","{"}'


@pytest.mark.parametrize("zone", ["", " +00", " +01", " -05:30"])
def test_a_time_and_zone_after_a_date_are_ignored(zone: str) -> None:
    """JDBC's driver writes it, and means the day."""
    assert decode_value(f"2024-03-31{zone}".encode(), DATE, 0) == dt.date(2024, 3, 31)
    at = dt.datetime(2024, 3, 31, 2, 30)
    assert decode_value(f"2024-03-31 02:30:00{zone.strip()}".encode(), TIMESTAMP, 0) == at
