"""Values from files, images and chance; and files that promise what they do not hold."""

from __future__ import annotations

import contextlib
import io
import struct
import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from poolgrad_studio.limits import LIMITS
from studio_support import TOKEN, Refused, Server, Tab, find, fresh_block, set_const
from test_studio_safety import request, status


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def png(array: Any, mode: str | None = None) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    image = Image.fromarray(array)
    (image.convert(mode) if mode else image).save(file, "PNG")
    return file.getvalue()


def value_of(tab: Tab, made: dict[str, Any]) -> Any:
    """The array that a Const with this answer gives, element by element, as the library reads it."""
    opened = tab.ask("new")
    opened["page"]["blocks"] = [fresh_block(tab, made["symbol"], "x")]
    set_const(opened["page"], "x", made)
    assert find(opened["page"], "x")
    tab.ask("put", doc=opened["doc"], revision=1, page=opened["page"])
    size = int(np.prod(made["shape"]))
    rows = tab.ask("rows", doc=opened["doc"], block="x", pin="val", start=0, stop=min(size, 1000))["rows"]
    return [row[2] for row in rows]


ARRAYS = [
    np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
    np.arange(6, dtype=">f8").reshape(3, 2) / 7,
    np.asfortranarray(np.arange(6, dtype=np.int32).reshape(2, 3)),
    np.array([True, False]),
    np.arange(6, dtype=np.float16) / 7,
    (np.arange(6, dtype=np.float32) / 7).astype(ml_dtypes.bfloat16),
    np.array([2**40, -(2**40)]),
    np.array([0, 255], np.uint8),
    np.float32(2.5),
    np.array([np.nan, np.inf, -np.inf, -0.0], np.float32),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.dtype}{list(a.shape)}")
def test_a_npy_file_becomes_a_const_with_its_values(server: Server, tab: Tab, array: Any) -> None:
    said = server.post("upload?kind=npy", npy(array))
    assert said.status_code == 200, said.text
    made = said.json()
    assert made["shape"] == list(array.shape)
    (server.folder / "a.npy").write_bytes(npy(array))
    assert tab.ask("input", kind="file", path="a.npy") == made
    got = value_of(tab, made)
    flat = np.asarray(array).reshape(-1)
    back = [text == "TRUE" for text in got] if flat.dtype == bool else np.array([float(text) for text in got])
    np.testing.assert_array_equal(np.asarray(back).astype(flat.dtype.newbyteorder("=")), flat)
    if flat.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(np.asarray(back)), np.signbit(flat))


def header(text: str, data: bytes = b"") -> bytes:
    raw = text.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(raw)) + raw + data


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "file"),
        (b"\x93NUMPY", "file"),
        (b"PK\x03\x04", "file"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", b"1234"), "file"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,)}"), "limit"),
        (header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}"), "limit"),
        (header("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", b"cos\nsystem\n"), "value"),
        (header("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", b"12345678"), "value"),
        (header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", b"1234"), "value"),
        (header("__import__('os').system('true')"), "file"),
        (header("{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}", b"12345678"), "value"),
    ],
)
def test_a_npy_file_that_lies_is_refused(server: Server, data: bytes, kind: str) -> None:
    said = server.post("upload?kind=npy", data)
    assert said.status_code in (400, 413)
    assert said.json()["error"]["kind"] == kind, said.text


def test_an_upload_over_the_limit_is_refused_before_it_comes(server: Server) -> None:
    lines = (f"Host: {server.host}", f"Origin: http://{server.host}", f"Content-Length: {LIMITS['upload'] + 1}")
    said = request(server, *lines, method="POST", path=f"/{TOKEN}/upload?kind=npy")
    assert status(said) == 413
    assert str(LIMITS["upload"]).encode() in said


def test_an_upload_that_hides_its_size_is_cut_off(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "upload", 100_000)
    lines = (f"Host: {server.host}", f"Origin: http://{server.host}", "Transfer-Encoding: chunked")
    body = "10000\r\n" + "x" * 0x10000 + "\r\n"
    whole = body * 3 + "0\r\n\r\n"
    with contextlib.suppress(ConnectionError):  # it may be cut off while it is still sending
        assert status(request(server, *lines, method="POST", path=f"/{TOKEN}/upload?kind=npy", body=whole)) == 413
    assert server.post("upload?kind=npy", npy(np.zeros(3))).status_code == 200


PIXELS = np.random.default_rng(3).integers(0, 256, (5, 7, 3), dtype=np.uint8)


@pytest.mark.parametrize("layout", ["HWC", "NHWC", "NCHW", "NDHWC"])
def test_an_image_becomes_numbers_from_0_to_1(server: Server, tab: Tab, layout: str) -> None:
    made = server.post(f"upload?kind=image&layout={layout}", png(PIXELS)).json()
    want = PIXELS.astype(np.float32) / 255
    want = {"HWC": want, "NHWC": want[None], "NCHW": want.transpose(2, 0, 1)[None], "NDHWC": want[None, None]}[layout]
    assert made["shape"] == list(want.shape)
    np.testing.assert_array_equal(np.array(value_of(tab, made), np.float32), want.reshape(-1))


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("1", 1), ("P", 3), ("RGBA", 4), ("LA", 4), ("I;16", 1)])
def test_every_kind_of_png_is_read(server: Server, mode: str, channels: int) -> None:
    data = png(PIXELS[:, :, 0].astype(np.uint16) * 257) if mode == "I;16" else png(PIXELS, mode)
    assert server.post("upload?kind=image", data).json()["shape"] == [1, 5, 7, channels]


def test_a_jpeg_is_read_and_other_formats_are_not(server: Server, tab: Tab) -> None:
    from PIL import Image

    for name, good in (("JPEG", True), ("BMP", False), ("GIF", False)):
        file = io.BytesIO()
        Image.fromarray(PIXELS).save(file, name)
        assert (server.post("upload?kind=image", file.getvalue()).status_code == 200) == good
    (server.folder / "x.png").write_bytes(png(PIXELS))
    assert tab.ask("input", kind="file", path="x.png", layout="HWC")["shape"] == [5, 7, 3]


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def test_a_picture_that_claims_to_be_huge_is_refused_by_its_header(server: Server) -> None:
    size = struct.pack(">II5B", 60_000, 60_000, 8, 0, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    said = server.post("upload?kind=image", bomb)
    assert said.status_code in (400, 413)
    assert said.json()["error"]["kind"] in ("limit", "file")


@pytest.mark.parametrize("type", ["float", "double", "int", "half", "bfloat16", "int64"])
@pytest.mark.parametrize("distribution", ["normal", "uniform", "integers", "ramp"])
def test_random_data_follows_its_seed(tab: Tab, type: str, distribution: str) -> None:
    asked = {"kind": "random", "shape": [2, 3], "type": type, "distribution": distribution, "low": -4, "high": 4}
    made = tab.ask("input", seed=1, **asked)
    assert made == tab.ask("input", seed=1, **asked)
    assert distribution == "ramp" or made != tab.ask("input", seed=2, **asked)
    values = [float(text) for text in value_of(tab, made)]
    if distribution == "ramp":
        assert values == [1, 2, 3, 4, 5, 6]
    if distribution == "uniform" or distribution == "integers":
        assert all(-4 <= value <= 4 for value in values)


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": [1 << 20, 1 << 20]},
        {"shape": [-1]},
        {"shape": [1] * 40},
        {"shape": [2], "seed": -1},
        {"shape": [2], "distribution": "integers", "low": 0.2, "high": 0.8},
        {"shape": [2], "distribution": "uniform", "low": 2, "high": 1},
        {"shape": [2], "type": "int", "distribution": "integers", "low": -1e300, "high": 1e300},
        {},
    ],
)
def test_random_data_beyond_reason_is_refused(tab: Tab, fields: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        tab.ask("input", kind="random", **fields)
    assert refused.value.kind in ("limit", "value", "protocol")


def test_an_input_must_be_an_array_or_an_image(server: Server, tab: Tab) -> None:
    (server.folder / "a.txt").write_text("x")
    for path in ("a.txt", "none.npy", ""):
        with pytest.raises(Refused):
            tab.ask("input", kind="file", path=path)
