"""What DirectML refuses: every field of a description, every binding, and nothing but a `PoolGradError` for any input."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from directml_support import gradient, tensor
from hypothesis import given
from hypothesis import strategies as st

from poolgrad import PoolGradError, directml
from poolgrad.dialects.directml.enums import lookup
from poolgrad.dialects.directml.errors import DXGI_ERROR_DEVICE_REMOVED, E_INVALIDARG, E_NOTIMPL

TENSOR_FIELDS = ["Sizes", "Strides", "TotalTensorSizeInBytes", "GuaranteedBaseOffsetAlignment", "Flags", "DimensionCount"]
OPERATOR_FIELDS = ["StartPadding", "EndPadding", "IncludePadding"]
GOOD: dict[str, Any] = {"dy": (1, 2, 2, 4), "dx": (1, 2, 3, 5)}
REFUSED: list[tuple[str, dict[str, Any], int]] = [
    ("InputGradientTensor.DataType", {"dy": tensor((1, 2, 2, 4), "FLOAT64")}, E_INVALIDARG),
    ("InputGradientTensor.DataType", {"dy": tensor((1, 2, 2, 4), "INT32")}, E_INVALIDARG),
    ("InputGradientTensor.DataType", {"dy": tensor((1, 2, 2, 4), "float32")}, E_INVALIDARG),
    ("InputGradientTensor.DataType", {"dy": tensor((1, 2, 2, 4), 13)}, E_INVALIDARG),
    ("InputGradientTensor.DataType", {"dy": tensor((1, 2, 2, 4), None)}, E_INVALIDARG),
    ("OutputGradientTensor.DataType", {"dx": tensor((1, 2, 3, 5), "FLOAT16")}, E_INVALIDARG),
    ("InputGradientTensor", {"dy": None}, E_INVALIDARG),
    ("InputGradientTensor.DimensionCount", {"dy": (2, 2, 4)}, E_INVALIDARG),
    ("InputGradientTensor.DimensionCount", {"dy": (1, 1, 1, 1, 2, 4)}, E_INVALIDARG),
    ("InputGradientTensor.DimensionCount", {"dy": tensor((1, 2, 2, 4), DimensionCount=5)}, E_INVALIDARG),
    ("OutputGradientTensor.DimensionCount", {"dx": (1, 2, 1, 3, 5)}, E_INVALIDARG),
    ("InputGradientTensor.Sizes[1]", {"dy": (1, 0, 2, 4)}, E_INVALIDARG),
    ("InputGradientTensor.Sizes[0]", {"dy": (2.0, 2, 2, 4)}, E_INVALIDARG),
    ("InputGradientTensor.Sizes[0]", {"dy": (True, 2, 2, 4)}, E_INVALIDARG),
    ("InputGradientTensor.Sizes[0]", {"dy": (2**32, 2, 2, 4)}, E_INVALIDARG),
    ("InputGradientTensor.Sizes", {"dy": "1224"}, E_INVALIDARG),
    ("InputGradientTensor.Sizes", {"dy": (2**16, 2**16, 2, 4)}, E_INVALIDARG),
    ("InputGradientTensor.Sizes", {"dy": tensor((1, 2, 2, 4), Strides=(1, 2**32 - 1, 4, 1))}, E_INVALIDARG),
    ("InputGradientTensor.Strides", {"dy": tensor((1, 2, 2, 4), Strides=(1, 4, 1))}, E_INVALIDARG),
    ("InputGradientTensor.Strides[3]", {"dy": tensor((1, 2, 2, 4), Strides=(1, 8, 4, -1))}, E_INVALIDARG),
    ("InputGradientTensor.Flags", {"dy": tensor((1, 2, 2, 4), Flags=2)}, E_INVALIDARG),
    ("OutputGradientTensor.Flags", {"dx": tensor((1, 2, 3, 5), Flags="OWNED_BY_DML")}, E_INVALIDARG),
    ("InputGradientTensor.TotalTensorSizeInBytes", {"dy": tensor((1, 2, 2, 4), TotalTensorSizeInBytes=60)}, E_INVALIDARG),
    ("InputGradientTensor.TotalTensorSizeInBytes", {"dy": tensor((1, 2, 2, 4), TotalTensorSizeInBytes=2**64)}, E_INVALIDARG),
    (
        "InputGradientTensor.GuaranteedBaseOffsetAlignment",
        {"dy": tensor((1, 2, 2, 4), GuaranteedBaseOffsetAlignment=24)},
        E_INVALIDARG,
    ),
    (
        "InputGradientTensor.GuaranteedBaseOffsetAlignment",
        {"dy": tensor((1, 2, 2, 4), GuaranteedBaseOffsetAlignment=2)},
        E_INVALIDARG,
    ),
    ("OutputGradientTensor.Strides", {"dx": tensor((1, 2, 3, 5), Strides=(30, 0, 5, 1))}, E_INVALIDARG),
    ("OutputGradientTensor.Strides", {"dx": tensor((1, 2, 3, 5), Strides=(30, 15, 4, 1))}, E_INVALIDARG),
    ("OutputGradientTensor.Sizes", {"dx": (1, 3, 3, 5)}, E_INVALIDARG),
    ("OutputGradientTensor.Sizes", {"dx": (2, 2, 3, 5)}, E_INVALIDARG),
    ("InputGradientTensor.Sizes[3]", {"dx": (1, 2, 3, 6)}, E_INVALIDARG),
    ("InputGradientTensor.Sizes[2]", {"EndPadding": (1, 0)}, E_INVALIDARG),
    ("DimensionCount", {"DimensionCount": 3}, E_INVALIDARG),
    ("DimensionCount", {"DimensionCount": "2"}, E_INVALIDARG),
    ("Strides[1]", {"Strides": (1, 0)}, E_INVALIDARG),
    ("Strides", {"Strides": (1,)}, E_INVALIDARG),
    ("Strides", {"Strides": 1}, E_INVALIDARG),
    ("WindowSize[0]", {"WindowSize": (0, 2)}, E_INVALIDARG),
    ("WindowSize[0]", {"WindowSize": (4, 2)}, E_INVALIDARG),
    ("WindowSize[1]", {"WindowSize": (2, 2**32)}, E_INVALIDARG),
    ("StartPadding[0]", {"StartPadding": (-1, 0)}, E_INVALIDARG),
    ("EndPadding", {"EndPadding": (0, 0, 0)}, E_INVALIDARG),
    ("Dilations[1]", {"Dilations": (1, 0)}, E_INVALIDARG),
    ("WindowSize[0]", {"Dilations": (3, 1)}, E_INVALIDARG),
    ("IncludePadding", {"IncludePadding": None}, E_INVALIDARG),
    ("IncludePadding", {"IncludePadding": 2}, E_INVALIDARG),
    ("InputGradientTensor.Sizes[3]", {"dy": (1, 2, 1, 2**29)}, E_NOTIMPL),
]


class TestRefusals:
    def test_the_good_one_is_good(self) -> None:
        directml.compile_operator(gradient(**GOOD))

    @pytest.mark.parametrize(("field", "change", "hresult"), REFUSED)
    def test_descriptions(self, field: str, change: dict[str, Any], hresult: int) -> None:
        with pytest.raises(directml.DirectMLError) as caught:
            directml.compile_operator(gradient(**{**GOOD, **change}))
        error = caught.value
        assert (error.field, error.hresult) == (field, hresult)
        assert error.operator.startswith("DML_OPERATOR_AVERAGE_POOLING")
        assert error.expected
        assert f"{field} must be {error.expected}, got " in str(error)
        assert isinstance(error, PoolGradError)
        assert isinstance(error, ValueError)
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.given) == (str(error), error.given)

    def test_windows_beyond_64_bits(self) -> None:
        huge = {
            "WindowSize": (2**32 - 1,) * 2,
            "EndPadding": (2**32 - 1,) * 2,
            "Strides": (2**32 - 1,) * 2,
            "IncludePadding": True,
        }
        with pytest.raises(directml.DirectMLError, match=r"2\*\*63") as caught:
            directml.compile_operator(gradient((1, 2, 1, 1), (1, 2, 3, 5), **huge))
        assert caught.value.hresult == E_NOTIMPL

    def test_a_desc_of_another_kind(self) -> None:
        for wrong in (None, {}, tensor((1, 1, 1, 1))):
            with pytest.raises(directml.DirectMLError, match="OperatorDesc"):
                directml.compile_operator(wrong)  # type: ignore[arg-type]

    @pytest.mark.parametrize("kind", ["FLOAT64", "BFLOAT16"])
    def test_extension_types_on_request_only(self, kind: str) -> None:
        desc = gradient(tensor((1, 2, 2, 4), kind), tensor((1, 2, 3, 5), kind))
        with pytest.raises(directml.DirectMLError, match="allow_extension_types=True"):
            directml.compile_operator(desc)
        directml.compile_operator(desc, allow_extension_types=True)

    @pytest.mark.parametrize(
        ("dy", "dx", "says"),
        [
            (np.zeros(15, np.float32), np.zeros(30, np.float32), "at least 64 bytes"),
            (np.zeros(16, np.float32), np.zeros(29, np.float32), "at least 120 bytes"),
            (np.zeros(16, np.float16), np.zeros(30, np.float32), "contiguous memory of bytes or of FLOAT32"),
            (np.zeros(16, np.int32), np.zeros(30, np.float32), "contiguous memory"),
            (np.zeros(32, np.float32)[::2], np.zeros(30, np.float32), "contiguous memory"),
            (np.zeros((4, 4), np.float32).T, np.zeros(30, np.float32), "contiguous memory"),
            (np.zeros(16, object), np.zeros(30, np.float32), "contiguous memory"),
            ([0.0] * 16, np.zeros(30, np.float32), "contiguous memory"),
            (None, np.zeros(30, np.float32), "contiguous memory"),
            (np.zeros(16, np.float32), bytes(120), "writeable"),
            (directml.BufferBinding(np.zeros(20, np.float32), 4), np.zeros(30, np.float32), "multiple of 16"),
            (directml.BufferBinding(np.zeros(20, np.float32), -16), np.zeros(30, np.float32), "multiple of 16"),
            (directml.BufferBinding(np.zeros(20, np.float32), 2**70), np.zeros(30, np.float32), "multiple of 16"),
            (directml.BufferBinding(np.zeros(20, np.float32), 16.0), np.zeros(30, np.float32), "multiple of 16"),  # type: ignore[arg-type]
            (directml.BufferBinding(np.zeros(20, np.float32), 16, 60), np.zeros(30, np.float32), "at least 64 bytes"),
            (directml.BufferBinding(np.zeros(20, np.float32), 16, 65), np.zeros(30, np.float32), "within the 64 bytes"),
        ],
    )
    def test_bindings(self, dy: Any, dx: Any, says: str) -> None:
        op = directml.compile_operator(gradient(**GOOD))
        with pytest.raises(directml.DirectMLError, match=says) as caught:
            op.execute({"InputGradientTensor": dy, "OutputGradientTensor": dx})
        assert caught.value.hresult == DXGI_ERROR_DEVICE_REMOVED

    def test_sizes_are_rounded_up_to_four_bytes(self) -> None:
        desc = gradient(*(tensor(n, "FLOAT16") for n in ((1, 1, 2, 2), (1, 1, 3, 3))))
        op = directml.compile_operator(desc)
        op.execute({"InputGradientTensor": bytes(8), "OutputGradientTensor": bytearray(20)})
        with pytest.raises(directml.DirectMLError, match="at least 20 bytes"):
            op.execute({"InputGradientTensor": bytes(8), "OutputGradientTensor": bytearray(18)})

    def test_input_and_output_in_one_place(self) -> None:
        memory = np.zeros(30, np.float32)
        op = directml.compile_operator(gradient(**GOOD))
        with pytest.raises(directml.DirectMLError, match="other than those of InputGradientTensor"):
            op.execute({"InputGradientTensor": memory, "OutputGradientTensor": memory})

    @pytest.mark.parametrize("names", [[], ["InputGradientTensor"], ["InputGradientTensor", "OutputTensor"], None])
    def test_names_of_bindings(self, names: Any) -> None:
        op = directml.compile_operator(gradient(**GOOD))
        bindings = names if names is None else {name: np.zeros(30, np.float32) for name in names}
        with pytest.raises(directml.DirectMLError, match="exactly for"):
            op.execute(bindings)
        with pytest.raises(directml.DirectMLError, match="exactly for"):
            op.initialize({"InputGradientTensor": np.zeros(30, np.float32)})

    def test_new_buffer(self) -> None:
        with pytest.raises(PoolGradError, match="got shape"):
            directml.new_buffer(tensor((1, 2, 3, 4)), np.zeros((1, 2, 4, 3)))
        with pytest.raises(PoolGradError, match="bytes"):
            directml.new_buffer(tensor((1, 1, 1, 1), TotalTensorSizeInBytes=2**62))

    def test_tables_beyond_memory(self) -> None:
        """A broadcast input may have as many cells as it likes, in no memory at all."""
        desc = gradient(tensor((1, 1, 1, 2**28), Strides=(0, 0, 0, 0)), (1, 1, 2, 2), StartPadding=(0, 2**28), EndPadding=(0, 0))
        with pytest.raises(directml.DirectMLError, match=r"Sizes\[3\]"):
            directml.compile_operator(desc)

    @given(st.data())
    def test_nothing_but_refusals(self, data: st.DataObject) -> None:
        wild = st.one_of(
            st.none(), st.booleans(), st.floats(), st.text(max_size=3), st.integers(-3, 8), st.integers(2**31, 2**66),
            st.lists(st.integers(-1, 7) | st.integers(2**31, 2**40) | st.text(max_size=1), max_size=5),
        )  # fmt: skip
        fields = {
            name: data.draw(wild) for name in data.draw(st.sets(st.sampled_from([*TENSOR_FIELDS, *OPERATOR_FIELDS]), max_size=3))
        }
        dy = tensor(
            **{"sizes": (1, 2, 2, 4), **{n.lower() if n == "Sizes" else n: v for n, v in fields.items() if n in TENSOR_FIELDS}}
        )
        desc = gradient(dy, (1, 2, 3, 5), **{n: v for n, v in fields.items() if n in OPERATOR_FIELDS and n != "WindowSize"})
        try:
            op = directml.compile_operator(desc, allow_explicit_sizes=True, strict=True)
            op.execute({"InputGradientTensor": bytes(64), "OutputGradientTensor": bytearray(120)})
        except PoolGradError:
            pass


class TestEnums:
    @pytest.mark.parametrize(
        ("given", "want"),
        [("FLOAT16", 2), ("DML_TENSOR_DATA_TYPE_INT64", 11), (1, 1), ("float16", None), (99, None), (True, None), (1.0, None)],
    )
    def test_lookup(self, given: Any, want: int | None) -> None:
        assert lookup(directml.TensorDataType, given) == want

    def test_flags(self) -> None:
        assert lookup(directml.TensorFlags, "DML_TENSOR_FLAG_OWNED_BY_DML") == 1
        assert lookup(directml.TensorFlags, 2) is None
        assert lookup(directml.TensorFlags, -1) is None
        assert lookup(directml.ExecutionFlags, 7) == 7
        assert lookup(directml.ExecutionFlags, 8) is None
