"""Resources of DxDispatch models: every form of their first values, every kind of file, every refusal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import support

from poolgrad.directml import dxdispatch


def resource(values: Any, kind: str | None = "FLOAT32", **more: Any) -> dict[str, Any]:
    return {"initialValues": values, **({} if kind is None else {"initialValuesDataType": kind}), **more}


def loaded(owner: dict[str, Any], tmp_path: Path | None = None, **options: Any) -> Any:
    model = {"resources": {"r": owner}, "dispatchables": {}, "commands": []}
    return dxdispatch.parse_model(model, input_path=tmp_path, **options).resources["r"]


def values(owner: dict[str, Any], tmp_path: Path | None = None, **options: Any) -> Any:
    found = loaded(owner, tmp_path, **options)
    return found.typed(found.new_buffer())


class TestResources:
    @pytest.mark.parametrize(
        ("owner", "dtype", "want"),
        [
            (resource([1, 2.5, "inf", "-Inf"]), np.float32, [1, 2.5, np.inf, -np.inf]),
            (resource([1, 1e300], "DML_TENSOR_DATA_TYPE_FLOAT16"), np.float16, [1, np.inf]),
            (resource([0.1], "FLOAT64"), np.float64, [0.1]),
            (resource([255, 0], "UINT8"), np.uint8, [255, 0]),
            (resource([-128], "INT8"), np.int8, [-128]),
            (resource([2**64 - 1], "UINT64"), np.uint64, [2**64 - 1]),
            (resource([-(2**63)], "INT64"), np.int64, [-(2**63)]),
            (resource({"valueCount": 3, "value": -2}, "INT16"), np.int16, [-2, -2, -2]),
            (resource({"valueCount": 4, "valueStart": 250, "valueDelta": 3}, "UINT8"), np.uint8, [250, 253, 0, 3]),
            (resource({"valueCount": 1, "valueStart": 5, "valueDelta": 3}, "UINT32"), np.uint32, [5]),
        ],
    )
    def test_forms(self, owner: dict[str, Any], dtype: Any, want: list[Any]) -> None:
        found = values(owner)
        assert found.dtype == dtype
        assert found.tolist() == want

    @pytest.mark.parametrize("kind", ["FLOAT32", "FLOAT16", "FLOAT64", "BFLOAT16"])
    def test_a_sequence_rounds_at_every_step(self, kind: str) -> None:
        owner = resource({"valueCount": 300, "valueStart": 0.3, "valueDelta": 0.1}, kind)
        found = values(owner, allow_extension_types=True)
        step, total, want = found.dtype.type(np.float32(0.1)), found.dtype.type(np.float32(0.3)), []
        if kind == "FLOAT64":
            step, total = np.float64(0.1), np.float64(0.3)
        for _ in range(300):
            want.append(total)
            total = found.dtype.type(total + step)
        support.assert_same_bits(found, np.array(want, found.dtype))

    def test_half_types_round_through_float32(self) -> None:
        """1 + 2^-11 + 2^-40 lies above the tie in double, on the tie in float32."""
        assert values(resource([1 + 2**-11 + 2**-40], "FLOAT16")).tolist() == [1]

    def test_mixed_list(self) -> None:
        owner = resource(
            [{"type": "UINT32", "value": 7}, {"name": "f", "type": "FLOAT32", "value": 1.5}, {"type": "INT8", "value": -1}], None
        )
        found = loaded(owner)
        assert found.values.tobytes() == np.uint32(7).tobytes() + np.float32(1.5).tobytes() + b"\xff"
        assert found.size == 12
        assert loaded({**owner, "initialValuesDataType": "UNKNOWN"}).values.tobytes() == found.values.tobytes()

    def test_sizes(self) -> None:
        assert loaded(resource([1, 2, 3], "FLOAT16")).size == 8
        found = loaded(resource([1, 2, 3], "FLOAT16", sizeInBytes=7))
        assert (found.size, found.typed(found.new_buffer()).tolist()) == (7, [1, 2, 3])
        assert found.typed(found.new_buffer(), whole=True).tolist() == [1, 2, 3]
        with pytest.raises(
            dxdispatch.ModelError, match=r"\(7 bytes\) is too small for the initialValues \(6 bytes\) at offset 2 bytes"
        ):
            loaded(resource([1, 2, 3], "FLOAT16", sizeInBytes=7, initialValuesOffsetInBytes=2))

    def test_the_offset_of_values_is_checked_and_not_applied(self) -> None:
        errors: list[str] = []
        owner = resource([1, 2], sizeInBytes=16, initialValuesOffsetInBytes=8)
        model = {"resources": {"r": owner}, "dispatchables": {}, "commands": []}
        assert dxdispatch.run_model(model, write_error=errors.append)["r"].tolist() == [1, 2]
        assert "begin at byte 0" in errors[0]

    @pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", "<i8", ">u2", "|u1", "?", "<f8"])
    def test_npy(self, tmp_path: Path, dtype: str) -> None:
        array = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
        np.save(tmp_path / "a.npy", array)
        found = values(resource({"sourcePath": "a.npy"}, None), tmp_path)
        assert found.tolist() == array.ravel().tolist()
        assert found.dtype == (np.uint8 if dtype == "?" else array.dtype.newbyteorder("="))

    def test_npy_of_bfloat16(self, tmp_path: Path) -> None:
        array = np.array([1.5, -2], ml_dtypes.bfloat16)
        np.save(tmp_path / "a.npy", array)
        found = values(resource({"sourcePath": "a.npy"}, "BFLOAT16"), tmp_path, allow_extension_types=True)
        support.assert_same_bits(found, array)

    def test_raw(self, tmp_path: Path) -> None:
        (tmp_path / "a.dat").write_bytes(np.array([1, 2], np.float32).tobytes())
        assert values(resource({"sourcePath": "a.dat"}), tmp_path).tolist() == [1, 2]

    def test_bad_files(self, tmp_path: Path) -> None:
        np.save(tmp_path / "f.npy", np.asfortranarray(np.zeros((2, 3), np.float32)))
        np.save(tmp_path / "c.npy", np.zeros(2, np.complex64))
        np.save(tmp_path / "s.npy", np.zeros(2, [("a", np.float32)]))
        np.save(tmp_path / "o.npy", np.array([None]), allow_pickle=True)
        np.save(tmp_path / "g.npy", np.zeros(4, np.float32))
        whole = (tmp_path / "g.npy").read_bytes()
        (tmp_path / "short.npy").write_bytes(whole[:-1])
        (tmp_path / "head.npy").write_bytes(whole[:20])
        (tmp_path / "huge.npy").write_bytes(whole.replace(b"(4,), }        ", b"(999999999,), }"))
        (tmp_path / "minus.npy").write_bytes(whole.replace(b"(4,), } ", b"(-4,), }"))
        (tmp_path / "v9.npy").write_bytes(whole[:6] + b"\x09" + whole[7:])
        (tmp_path / "text.npy").write_text("not an array")
        (tmp_path / "empty.dat").write_bytes(b"")
        (tmp_path / "raw.dat").write_bytes(b"1234")
        for name in ("f", "c", "s", "o", "short", "head", "huge", "minus", "v9", "text", "missing"):
            with pytest.raises(dxdispatch.ModelError):
                loaded(resource({"sourcePath": f"{name}.npy"}, None), tmp_path)
        for name, kind in (
            ("empty.dat", "FLOAT32"),
            ("raw.dat", None),
            ("g.npy", "FLOAT16"),
            ("missing.dat", "INT8"),
            (".", "INT8"),
            ("\0", "INT8"),
        ):
            with pytest.raises(dxdispatch.ModelError):
                loaded(resource({"sourcePath": name}, kind), tmp_path)

    @pytest.mark.parametrize(
        ("owner", "says"),
        [
            (resource([1.0], "INT32"), "an integer from -2147483648 to 2147483647, got 1.0"),
            (resource([256], "UINT8"), "an integer from 0 to 255, got 256"),
            (resource([True]), "a number or"),
            (resource(["infinity"]), "a number or"),
            (resource([None]), "a number or"),
            (resource([[1]]), "a number or"),
            (resource([]), "must be non-empty"),
            (resource({"valueCount": 0, "value": 1}), "must be non-empty"),
            (resource({"valueCount": -1, "value": 1}), "Field 'valueCount': Expected an integer from 0"),
            (resource({"valueCount": 2**32, "value": 1}), "Field 'valueCount'"),
            (resource({"value": 1}), "Field 'valueCount' is required"),
            (resource({"valueCount": 2, "valueStart": 1}), "Field 'valueDelta' is required"),
            (resource({"valueCount": 2, "value": 1, "valueStart": 1, "valueDelta": 1}), "mutually exclusive"),
            (resource({"valueCount": 2}), "unknown generator"),
            (resource({"valueCount": 2, "value": 1}, None), "'initialValuesDataType' is required"),
            (resource({"sourcePath": 1}), "Field 'sourcePath': Expected a string"),
            (resource("deferred"), "ONNX"),
            (resource("something"), "must be an array of numbers"),
            (resource(1), "must be an array of numbers"),
            (resource([1], "FLOAT8"), "Field 'initialValuesDataType': Expected a name among"),
            (resource([1], "UINT4"), "UINT4 values are not supported"),
            (resource([1], "BFLOAT16"), "BFLOAT16 is an extension"),
            (resource([1], None), "non-null JSON object"),
            (resource([{"type": "FLOAT16", "value": 1}], None), "FLOAT16 is not supported in a mixed list"),
            (resource([{"type": "UNKNOWN", "value": 1}], None), "UNKNOWN is not supported"),
            (resource([{"value": 1}], None), "Field 'type' is required"),
            (resource([1], sizeInBytes=2**63), "addressing|bytes"),
            ({"initialValuesDataType": "FLOAT32"}, "Field 'initialValues' is required"),
            (7, "non-null JSON object"),
        ],
    )
    def test_refusals(self, owner: Any, says: str) -> None:
        with pytest.raises(dxdispatch.ModelError, match=says) as caught:
            loaded(owner)
        assert str(caught.value).startswith("Failed to parse resource r: ")

    def test_values_beyond_memory_are_refused_unallocated(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("poolgrad.arrays._memory", lambda: 2**30)
        for owner in (resource({"valueCount": 2**32 - 1, "value": 0}), resource([1], sizeInBytes=2**40)):
            with pytest.raises(dxdispatch.ModelError, match="this machine has"):
                loaded(owner)

    def test_images_need_pillow(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "PIL.Image", None)
        with pytest.raises(dxdispatch.ModelError, match="needs Pillow"):
            loaded(resource({"sourcePath": "a.png"}, resampleSize=[1, 3, 2, 2]), tmp_path)

    @pytest.mark.parametrize("suffix", [".png", ".PNG", ".jpg"])
    def test_images(self, tmp_path: Path, suffix: str) -> None:
        pillow = pytest.importorskip("PIL.Image")
        pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
        pillow.fromarray(pixels).save(tmp_path / f"in{suffix}", quality=100)
        owner = resource({"sourcePath": f"in{suffix}"}, resampleSize=[1, 3, 4, 6], resampleMode="scale")
        found = values(owner, tmp_path)
        error = abs(found.reshape(3, 4, 6) * 255 - pixels.transpose(2, 0, 1)).max()
        assert error <= (8 if suffix == ".jpg" else 1e-4)
        assert values({**owner, "resampleSize": [1, 1, 2, 3], "initialValuesDataType": "FLOAT16"}, tmp_path).dtype == np.float16
        command = {"type": "writeFile", "resource": "r", "targetPath": str(tmp_path / f"out{suffix}"), "dimensions": [1, 3, 4, 6]}
        model = dxdispatch.parse_model(
            {"resources": {"r": owner}, "dispatchables": {}, "commands": [command]}, input_path=tmp_path
        )
        dxdispatch.run_model(model, write=list[str]().append)
        written = np.asarray(pillow.open(tmp_path / f"out{suffix}")).astype(int)
        assert abs(written - pixels).max() <= (12 if suffix == ".jpg" else 1)
        for change in (
            {"resampleSize": [1, 2, 4, 6]},
            {"resampleMode": "crop"},
            {"resampleSize": []},
            {"initialValuesDataType": "INT8"},
        ):
            with pytest.raises(dxdispatch.ModelError):
                loaded({**owner, **change}, tmp_path)
