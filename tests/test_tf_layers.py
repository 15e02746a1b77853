"""The Keras layers: their numbers, shapes and configs; training, saving, exporting and compiling; what they refuse."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support

import poolgrad
from poolgrad import PoolGradTypeError, PoolGradValueError, raw_ops

if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("keras") is None:
    pytest.skip("TensorFlow is not installed", allow_module_level=True)

import keras
import tensorflow as tf

import poolgrad.tensorflow as pt

if keras.backend.backend() != "tensorflow":
    pytest.skip("Keras runs on another backend here", allow_module_level=True)

FLOAT = np.dtype(np.float32)
LAYERS = {1: "AveragePooling1D", 2: "AveragePooling2D", 3: "AveragePooling3D"}
SPACE = {1: "L", 2: "HW", 3: "DHW"}
GIVEN: list[tuple[int, dict[str, Any]]] = [
    (1, {"pool_size": 3, "strides": 2, "padding": [(0, 2)], "count": "padded"}),
    (1, {"pool_size": [4], "padding": 2, "count": "window", "ceil_mode": True}),
    (2, {}),
    (2, {"pool_size": (3, 2), "strides": (2, 1), "padding": ((2, 1), (0, 1))}),
    (2, {"pool_size": 2, "strides": (1, 3), "padding": (1, 0), "dilation": (1, 2), "divisor": 3}),
    (2, {"pool_size": 3, "strides": 2, "padding": "same_lower"}),
    (3, {"pool_size": (2, 3, 1), "strides": (1, 2, 2), "padding": ((1, 0), (0, 2), (0, 0)), "count": "padded"}),
]
SIZES = (9, 10, 6)


def arrays(axes: int, data_format: str) -> tuple[Any, str]:
    first = data_format == "channels_first"
    shape = (2, 5, *SIZES[:axes]) if first else (2, *SIZES[:axes], 5)
    return support.random_array(axes, shape, FLOAT), f"NC{SPACE[axes]}" if first else f"N{SPACE[axes]}C"


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize(("axes", "given"), GIVEN)
def test_average_pooling(axes: int, given: dict[str, Any], data_format: str) -> None:
    x, layout = arrays(axes, data_format)
    layer = getattr(pt, LAYERS[axes])(**given, data_format=data_format)
    options = {"stride": given.get("strides"), "padding": given.get("padding", "valid"), "layout": layout}
    options |= {name: given[name] for name in ("count", "divisor", "dilation", "ceil_mode") if name in given}
    want = poolgrad.avg_pool(x, given.get("pool_size", 2), **options)
    support.assert_same_bits(layer(x).numpy(), want)
    np.testing.assert_allclose(tf.function(layer)(x), want, rtol=1e-5, atol=1e-5)
    assert layer.compute_output_shape(x.shape) == want.shape
    assert layer(keras.Input(x.shape[1:])).shape == (None, *want.shape[1:])
    again = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    support.assert_same_bits(again(x).numpy(), want)


def test_as_keras_own_layers() -> None:
    for axes, name in LAYERS.items():
        x, _ = arrays(axes, "channels_last")
        for padding in ("valid", "same"):
            given = {"pool_size": 3, "strides": 2, "padding": padding}
            want = getattr(keras.layers, name)(**given)(x)
            np.testing.assert_allclose(getattr(pt, name)(**given)(x), want, rtol=1e-5, atol=1e-5)


def model(jit: Any = False) -> Any:
    made = keras.Sequential(
        [
            keras.Input((12, 10, 3)),
            keras.layers.Conv2D(4, 3),
            pt.AveragePooling2D(3, strides=2, padding=((1, 0), (0, 2)), count="padded"),
            pt.FractionalAveragePooling2D((1.3, 1.5), overlapping=True, seed=3),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    made.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit)
    return made


def data() -> tuple[Any, Any]:
    x = support.random_array(9, (32, 12, 10, 3), FLOAT, "whole") / 16
    return x, x.mean((1, 2, 3))[:, None] + 1


def test_numbers_of_numpy_are_kept_as_plain_ones() -> None:
    """A config is written as JSON; it must be that of the same layer made with Python's numbers."""
    pairs = [
        (pt.AveragePooling2D(2, padding=np.array([[1, 0], [0, 1]])), pt.AveragePooling2D(2, padding=((1, 0), (0, 1)))),
        (pt.AveragePooling2D(np.int64(2), strides=np.array([1, 2])), pt.AveragePooling2D(2, strides=(1, 2))),
        (pt.FractionalAveragePooling2D(np.float32(1.5), seed=np.int64(3)), pt.FractionalAveragePooling2D(1.5, seed=3)),
        (pt.FractionalAveragePooling2D(np.array([1.5, 1.25])), pt.FractionalAveragePooling2D((1.5, 1.25))),
    ]
    x = support.random_array(1, (2, 9, 8, 3), FLOAT)
    for given, plain in pairs:
        configs = [json.dumps({**layer.get_config(), "name": ""}) for layer in (given, plain)]
        assert configs[0] == configs[1]
        support.assert_same_bits(given(x).numpy(), plain(x).numpy())


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_training(jit: bool) -> None:
    keras.utils.set_random_seed(1)
    made, (x, y) = model(jit), data()
    losses = made.fit(x, y, epochs=6, batch_size=16, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]


def test_saved_and_exported_models_answer_alike(tmp_path: Path) -> None:
    keras.utils.set_random_seed(2)
    made, (x, _) = model(), data()
    want = made.predict(x, verbose=0)
    made.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(x, verbose=0), want)
    assert [layer.get_config() for layer in loaded.layers] == [layer.get_config() for layer in made.layers]
    made.export(tmp_path / "exported", verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "exported"))
    np.testing.assert_allclose(exported.serve(x), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_fractional_draws_in_training_alone(data_format: str) -> None:
    shape = (2, 5, 20, 31) if data_format == "channels_first" else (2, 20, 31, 5)
    x = tf.constant(support.random_array(4, shape, FLOAT))
    given = {"pooling_ratio": (1.5, 1.25), "overlapping": True, "data_format": data_format}
    layers = [pt.FractionalAveragePooling2D(**given, seed=7) for _ in range(2)]
    steps = [layers[0], tf.function(layers[1], jit_compile=data_format == "channels_first")]
    drawn = [[step(x, training=True).numpy() for _ in range(3)] for step in steps]
    for eager, graph in zip(*drawn, strict=True):
        np.testing.assert_allclose(graph, eager, rtol=1e-5, atol=1e-5)
    assert abs(drawn[0][0] - drawn[0][1]).max() > 1e-3
    calm = [step(x, training=False).numpy() for step in (steps[0], steps[1], steps[0])]
    support.assert_same_bits(calm[0], calm[2])
    np.testing.assert_allclose(calm[1], calm[0], rtol=1e-5, atol=1e-5)
    assert calm[0].shape == layers[0].compute_output_shape(shape)


def test_fractional_in_inference_is_the_middle_draw() -> None:
    x = support.random_array(5, (1, 10, 7, 2), FLOAT)
    layer = pt.FractionalAveragePooling2D(1.44)
    want = raw_ops.fractional_avg_pool_at(x, [0, 2, 3, 5, 7, 9, 10], [0, 2, 4, 5, 7])
    support.assert_same_bits(layer(x).numpy(), want)


def test_mixed_precision() -> None:
    x, _ = arrays(2, "channels_last")
    assert pt.AveragePooling2D(2, dtype="mixed_float16")(x).dtype == tf.float16
    assert pt.FractionalAveragePooling2D(1.5, dtype="mixed_bfloat16")(x, training=True).dtype == tf.bfloat16


def test_unknown_space() -> None:
    """A model may leave the sizes open; a graph that does not know them either is refused."""
    inputs = keras.Input((None, None, 3))
    made = keras.Model(inputs, pt.FractionalAveragePooling2D(1.5)(pt.AveragePooling2D(2)(inputs)))
    assert made.output_shape == (None, None, None, 3)
    assert made(np.ones((2, 12, 9, 3), np.float32)).shape == (2, 4, 2, 3)
    with pytest.raises(PoolGradValueError, match="known spatial sizes"):
        tf.function(made).get_concrete_function(tf.TensorSpec((None, None, None, 3)))


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"pool_size": 0}, PoolGradValueError, "pool_size must be at least 1"),
        ({"pool_size": 2.0}, PoolGradTypeError, "pool_size must be an integer"),
        ({"strides": (1, 2, 3)}, PoolGradValueError, "strides must be an integer or 2"),
        ({"padding": "sam"}, PoolGradValueError, "padding must be one of"),
        ({"padding": [(1, 2)]}, PoolGradValueError, r"2 \(before, after\) pairs"),
        ({"padding": ((1, 2), 3)}, PoolGradValueError, r"2 \(before, after\) pairs"),
        ({"padding": -1}, PoolGradValueError, "padding must be at least 0"),
        ({"count": "all"}, PoolGradValueError, "count must be one of"),
        ({"divisor": 0}, PoolGradValueError, "divisor must be at least 1"),
        ({"data_format": "NHWC"}, PoolGradValueError, "data_format must be one of"),
        ({"padding": "same", "ceil_mode": True}, PoolGradValueError, "ceil_mode applies to"),
    ],
)
def test_refused_average_pooling(given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        pt.AveragePooling2D(**given)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"pooling_ratio": 0.5}, PoolGradValueError, "at least 1"),
        ({"pooling_ratio": float("nan")}, PoolGradValueError, "at least 1"),
        ({"pooling_ratio": (1.5, 1.5, 1.5)}, PoolGradValueError, "two of them"),
        ({"pooling_ratio": "1.5"}, PoolGradTypeError, "must be a number"),
        ({"pooling_ratio": 1.5, "seed": 0.5}, PoolGradTypeError, "seed must be an integer"),
        ({"pooling_ratio": 1.5, "overlapping": "yes"}, PoolGradTypeError, "overlapping"),
    ],
)
def test_refused_fractional_pooling(given: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        pt.FractionalAveragePooling2D(**given)


def test_refused_inputs() -> None:
    with pytest.raises(PoolGradValueError, match="pooling_ratio must be at most the size"):
        pt.FractionalAveragePooling2D(5)(np.ones((1, 4, 9, 1), np.float32))
    with pytest.raises(PoolGradValueError, match="larger than the padded input"):
        pt.AveragePooling2D(5)(np.ones((1, 4, 9, 1), np.float32))
    with pytest.raises(ValueError, match="ndim"):
        pt.AveragePooling2D(2)(np.ones((1, 4, 9), np.float32))
    with pytest.raises(PoolGradTypeError, match=r"layers of poolgrad\.tensorflow"):
        pt.AvgPool(keras.Input((4, 4, 3)), [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
