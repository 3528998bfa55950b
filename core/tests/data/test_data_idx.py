"""The IDX reader: what it reads, and that whatever else it is given, it refuses by DataError."""

from __future__ import annotations

import gzip
import hashlib
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dlb.data.idx import encode_idx, read_idx
from dlb.errors import DataError

IMAGES = encode_idx(np.arange(24, dtype=np.uint8).reshape(2, 3, 4))

DTYPES = st.sampled_from(["u1", "i1", "<i2", ">i2", "<i4", "<f4", ">f4", "<f8"])

same_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def header(code: int, *shape: int) -> bytes:
    return bytes((0, 0, code, len(shape))) + struct.pack(f">{len(shape)}I", *shape)


@pytest.mark.parametrize("compress", [False, True])
def test_reads_the_documented_layout(tmp_path: Path, compress: bool) -> None:
    content = bytes.fromhex("00000802 00000002 00000003 000102 ff0405")
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content) if compress else content)
    array = read_idx(path)
    assert array.dtype == np.uint8
    assert array.tolist() == [[0, 1, 2], [255, 4, 5]]
    assert array.flags.c_contiguous
    assert array.flags.writeable


def test_big_endian_values_come_in_native_order(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(header(0x0B, 2) + struct.pack(">2h", 1, -2))
    array = read_idx(path)
    assert array.dtype == np.dtype("=i2")
    assert array.tolist() == [1, -2]


@same_folder
@given(
    array=DTYPES.flatmap(
        lambda d: hnp.arrays(d, hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=5))
    ),
    compress=st.booleans(),
)
def test_what_is_written_is_read_back(tmp_path: Path, array: np.ndarray, compress: bool) -> None:
    content = encode_idx(array)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content) if compress else content)
    found = read_idx(path, sha256=hashlib.sha256(content).hexdigest())
    np.testing.assert_array_equal(found, array)


@same_folder
@given(
    content=st.one_of(
        st.binary(max_size=64),
        st.binary(max_size=64).map(lambda tail: b"\0\0" + tail),
        st.binary(max_size=64).map(lambda tail: b"\x1f\x8b\x08\0" + tail),
        st.binary(max_size=64).map(gzip.compress),
        st.tuples(
            st.sampled_from([8, 9, 11, 12, 13, 14, 7]),
            st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 4), max_size=9),
            st.binary(max_size=64),
        ).map(lambda t: header(t[0], *t[1]) + t[2]),
    )
)
def test_any_bytes_are_an_array_or_a_data_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    try:
        array = read_idx(path)
    except DataError as error:
        assert str(path) in str(error)
    else:
        assert encode_idx(array) == (
            gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
        )


@same_folder
@given(position=st.integers(0, len(IMAGES) - 1), value=st.integers(0, 255))
def test_any_changed_byte_is_noticed(tmp_path: Path, position: int, value: int) -> None:
    changed = bytearray(IMAGES)
    changed[position] = value
    path = tmp_path / "file"
    path.write_bytes(changed)
    digest = hashlib.sha256(IMAGES).hexdigest()
    if bytes(changed) == IMAGES:
        read_idx(path, sha256=digest)
    else:
        with pytest.raises(DataError):
            read_idx(path, sha256=digest)


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "truncated"),
        (IMAGES[:3], "truncated"),
        (IMAGES[:10], "truncated"),
        (IMAGES[:-1], "truncated"),
        (IMAGES + b"\0", "oversized"),
        (b"\1" + IMAGES[1:], "not an IDX file"),
        (IMAGES[:2] + b"\x07" + IMAGES[3:], "not an IDX file"),
        (IMAGES[:3] + b"\0" + IMAGES[4:], "not an IDX file"),
        (header(8, *[1] * 9) + b"\0", "not an IDX file"),
        (header(8, 3, 0), "empty"),
        (header(8, 2**32 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1), "above the limit"),
        (header(14, 2**32 - 1), "above the limit"),
        (b"<html>404</html>", "not an IDX file"),
    ],
)
def test_refusals(tmp_path: Path, content: bytes, told: str, compress: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content) if compress else content)
    with pytest.raises(DataError, match=told) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_a_gzip_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for length in range(2, len(gzip.compress(IMAGES))):
        path.write_bytes(gzip.compress(IMAGES)[:length])
        with pytest.raises(DataError):
            read_idx(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            read_idx(path)


def test_a_gzip_bomb_and_a_false_header_cost_no_memory(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(gzip.compress(header(8, 10) + bytes(200_000_000), compresslevel=1))
    false_header = tmp_path / "false"
    false_header.write_bytes(gzip.compress(header(8, 1_000_000_000) + b"few"))
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="oversized"):
            read_idx(bomb)
        with pytest.raises(DataError, match="truncated"):
            read_idx(false_header)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("array", [np.zeros(3, np.int64), np.zeros(3, bool), np.array(["a"])])
def test_types_that_idx_lacks_are_not_written(array: np.ndarray) -> None:
    with pytest.raises(DataError, match="IDX cannot hold"):
        encode_idx(array)
