"""Payloads: what is unpacked is what was packed, and damage is noticed."""

from __future__ import annotations

import struct

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import TaskError
from penstock.base.problems import Problem
from penstock.exchange.payload import Payload, to_bytes, to_frame

numbers = st.integers(-(2**62), 2**62)
payloads = st.builds(
    Payload,
    kind=st.sampled_from(["rows", "split", "report"]),
    stage=st.integers(-1, 5),
    task=st.integers(0, 9),
    edge=st.integers(-1, 9),
    seen=st.dictionaries(st.integers(0, 5), numbers),
    marks=st.dictionaries(st.integers(0, 5), numbers),
    facts=st.dictionaries(st.text(), st.none() | numbers | st.text()),
    body=st.binary(max_size=40),
)


@given(payload=payloads)
def test_pack_and_unpack(payload: Payload) -> None:
    assert Payload.unpack(payload.pack()) == payload


@given(payload=payloads, data=st.data())
def test_a_payload_that_is_cut_short_is_noticed(payload: Payload, data: st.DataObject) -> None:
    packed = payload.pack()
    length = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(TaskError, match="damaged"):
        Payload.unpack(packed[:length])


def test_other_bytes_and_longer_ones_are_noticed() -> None:
    packed = Payload(kind="rows", stage=0, task=0, body=b"abc").pack()
    for wrong in (b"JUNK" + packed[4:], packed + b"x"):
        with pytest.raises(TaskError, match="damaged"):
            Payload.unpack(wrong)


def test_facts_may_be_kinds_of_the_builtin_types() -> None:
    """Errors carry sentences that know their place, and users compute with NumPy."""
    facts = {"problem": Problem("it is late", "query.py:3"), "share": np.float64(0.5)}
    packed = Payload(kind="error", stage=-1, task=0, facts=facts).pack()
    assert Payload.unpack(packed).facts == {"problem": "it is late", "share": 0.5}


@pytest.mark.parametrize(
    "header", [b"[]", b"{}", b"\xff", b'["rows",0,0,"1",{},{},{}]', b'["rows",0,0,1,{"a":1},{},{}]']
)
def test_a_header_that_is_none_is_noticed(header: bytes) -> None:
    sound = b'["rows",0,0,1,{"0":1},{},{}]'
    assert Payload.unpack(_packed(sound)).seen == {0: 1}
    with pytest.raises(TaskError, match="header of a payload was damaged"):
        Payload.unpack(_packed(header))


def _packed(header: bytes) -> bytes:
    return struct.pack("<4sIQ", b"PNS1", len(header), 3) + header + b"abc"


def test_frames_keep_types_and_nulls() -> None:
    frame = pl.DataFrame(
        {"s": ["a", None], "l": [[1], None], "d": pl.Series([1, None], dtype=pl.Duration("us"))}
    )
    assert to_frame(to_bytes(frame)).equals(frame)
    assert to_frame(to_bytes(frame.clear())).schema == frame.schema
