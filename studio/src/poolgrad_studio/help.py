"""What a block's help says, in plain words."""

from __future__ import annotations

__all__ = ["HELP"]

_WINDOWS = (
    "ksize and strides hold one number per axis of the input, in the order of data_format_; the batch is always 1. "
    "padding is SAME (as many outputs as strides fit, the input padded where needed) or VALID (only windows that lie inside).\n\n"
    "A window divides by the inputs it covers, so padding never counts."
)
_GRADIENT = (
    "grad holds one number for each output of the pooling, orig_input_shape the shape of what was pooled. The result has that "
    "shape: each input gets the sum of grad / divisor over the windows that cover it.\n\n"
)
_FRACTIONAL = (
    "overlapping_ = true makes the boundary between two windows belong to both. The outputs row_pooling_sequence and "
    "col_pooling_sequence hold the boundaries."
)

HELP = {
    "Const": "A tensor: choose its type, give its shape as [2][3] (nothing for a single number) and its values row by row, "
    "separated by ; or , as many as the shape holds.",
    "Const_ex": "A tensor like Const, whose type the property dtype decides: DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64, DT_BOOL, "
    "DT_STRING, DT_HALF or DT_BFLOAT16.",
    "AvgPool": f"Average pooling of images.\n\n{_WINDOWS}",
    "AvgPoolGrad": f"The gradient of AvgPool. enuSpace has no such block; it is an extension.\n\n{_GRADIENT}{_WINDOWS}",
    "AvgPool3D": "Average pooling of volumes. data_format_ is NDHWC or NCDHW; enuSpace's own default, NHWC, cannot run."
    f"\n\n{_WINDOWS}",
    "AvgPool3DGrad": f"The gradient of AvgPool3D.\n\n{_GRADIENT}{_WINDOWS}",
    "FractionalAvgPool": "Average pooling between boundaries drawn at random, so that the output is smaller by about "
    "pooling_ratio, such as 1.0,1.44,1.73,1.0. With deterministic_ = true and a seed_ the boundaries are the same every time."
    f"\n\n{_FRACTIONAL}",
    "FractionalAvgPoolGrad": "The gradient of FractionalAvgPool: wire its two sequences here. enuSpace has no such block; it "
    f"is an extension.\n\n{_FRACTIONAL}",
    "ClientSession": "Runs everything upstream of what is wired to it. Results show on every block upstream of fetch_outputs; "
    "what hangs on run_outputs runs without showing. INFINITE_LOOP repeats until stopped, SHOW_DEBUG logs the first elements of "
    "what is fetched. device is kept, and has no effect.",
}
