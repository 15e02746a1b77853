"""The blocks: their pins in enuSpace's order, what may be typed into each and its default.

A pin is an `input` (a wire ends there), a `const` (a property), an `output` (a wire starts there) or a `result` (filled by
a run, one per output, named `result_` and its name). `interface` is the C++ type that decides which pins may meet.
Where enuSpace's own default cannot run (`NHWC` in a 3-D block) ours differs, and the table in the documentation says so.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BLOCKS", "BlockDef", "PinDef"]

SCOPE, INPUT, OUTPUT = "Scope", "Input", "Output"
INITIALIZER, TENSORS = "Input::Initializer", "std::vector<Tensor>"
FETCH, OPERATIONS, FEED = "std::vector<tensorflow::Output>", "std::vector<tensorflow::Operation>", "FeedType"


@dataclass(frozen=True)
class PinDef:
    """A pin as its block defines it. `form` names the grammar of its text: ints, floats, padding, attrs, bool, dtype,
    values, text; `length` is how many items a list must have, `keys` what attributes there are."""

    name: str
    kind: str
    interface: str
    type: str = "string"
    default: str = ""
    form: str = ""
    length: int = 0
    keys: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class BlockDef:
    """A block we run. `extension` marks the two that enuSpace never had."""

    name: str
    summary: str
    pins: tuple[PinDef, ...]
    extension: bool = False

    def pin(self, name: str) -> PinDef | None:
        return next((pin for pin in self.pins if pin.name == name), None)

    def of_kind(self, kind: str) -> tuple[PinDef, ...]:
        return tuple(pin for pin in self.pins if pin.kind == kind)


def _block(
    name: str, summary: str, inputs: list[str], consts: list[PinDef], outputs: list[str], extension: bool = False
) -> BlockDef:
    pins = [
        PinDef("scope", "input", SCOPE, default="scope"),
        *(PinDef(pin, "input", INPUT) for pin in inputs),
        *consts,
        *(PinDef(pin, "output", OUTPUT) for pin in outputs),
        *(PinDef(f"result_{pin}", "result", TENSORS, "double", "0", "values") for pin in outputs),
    ]
    return BlockDef(name, summary, tuple(pins), extension)


def _regular(name: str, axes: int, default: str = "") -> list[PinDef]:
    """The properties of evenly spaced windows; each list has an entry for the batch and the channels too."""
    formats = ("NHWC", "NCHW") if axes == 2 else ("NDHWC", "NCDHW")
    lists = "gtl::ArraySlice<int>"
    return [
        PinDef("ksize", "const", lists, default=default, form="ints", length=axes + 2),
        PinDef("strides", "const", lists, default=default, form="ints", length=axes + 2),
        PinDef("padding", "const", "StringPiece", form="padding", choices=("SAME", "VALID")),
        PinDef(
            "attrs",
            "const",
            f"{name}::Attrs",
            default=f"data_format_ = {formats[0]};",
            form="attrs",
            keys=("data_format_",),
            choices=formats,
        ),
    ]


VAL = PinDef("val", "const", INITIALIZER, "double", form="values")
FRACTIONAL_KEYS = ("pseudo_random_", "overlapping_", "deterministic_", "seed_", "seed2_")
FRACTIONAL_DEFAULT = "pseudo_random_ = false; overlapping_ = false; deterministic_ = false; seed_ = 0; seed2_ = 0;"
SEQUENCES = ["row_pooling_sequence", "col_pooling_sequence"]

_ALL = (
    _block("Const", "a tensor of the pin's type and shape", [], [VAL], ["output"]),
    _block(
        "Const_ex",
        "a tensor whose type the dtype property decides",
        [],
        [VAL, PinDef("dtype", "const", "DataType", default="DT_INT32", form="dtype")],
        ["output"],
    ),
    _block("AvgPool", "average pooling of images", ["value"], _regular("AvgPool", 2, "1,1,1,1"), ["output"]),
    _block(
        "AvgPoolGrad",
        "the gradient of AvgPool",
        ["orig_input_shape", "grad"],
        _regular("AvgPoolGrad", 2, "1,1,1,1"),
        ["output"],
        extension=True,
    ),
    _block("AvgPool3D", "average pooling of volumes", ["input"], _regular("AvgPool3D", 3), ["output"]),
    _block("AvgPool3DGrad", "the gradient of AvgPool3D", ["orig_input_shape", "grad"], _regular("AvgPool3DGrad", 3), ["output"]),
    _block(
        "FractionalAvgPool",
        "average pooling between boundaries that are drawn at random",
        ["value"],
        [
            PinDef("pooling_ratio", "const", "gtl::ArraySlice<float>", form="floats", length=4),
            PinDef("attrs", "const", "FractionalAvgPool::Attrs", default=FRACTIONAL_DEFAULT, form="attrs", keys=FRACTIONAL_KEYS),
        ],
        ["output", *SEQUENCES],
    ),
    _block(
        "FractionalAvgPoolGrad",
        "the gradient of FractionalAvgPool",
        ["orig_input_tensor_shape", "out_backprop", *SEQUENCES],
        [
            PinDef(
                "attrs",
                "const",
                "FractionalAvgPoolGrad::Attrs",
                default="overlapping_ = false;",
                form="attrs",
                keys=("overlapping_",),
            )
        ],
        ["output"],
        extension=True,
    ),
    BlockDef(
        "ClientSession",
        "runs what is wired to it",
        (
            PinDef("device", "const", "device", default="/cpu:0", form="text"),
            PinDef("scope", "input", SCOPE, default="scope"),
            PinDef("fetch_outputs", "input", FETCH),
            PinDef("inputs", "input", FEED),
            PinDef("run_outputs", "input", OPERATIONS),
            PinDef("SHOW_DEBUG", "const", "", "bool", "FALSE", "bool"),
            PinDef("INFINITE_LOOP", "const", "", "bool", "FALSE", "bool"),
            PinDef("status", "output", "Status"),
        ),
    ),
)

BLOCKS: dict[str, BlockDef] = {block.name: block for block in _ALL}
