# Everything lives in .venv: nothing is installed outside this folder.
#
# Stamp files remember what has been done. The package is installed, not linked, so that tests and examples run what a
# user would get; it is built again when a source changes, and only what changed is compiled again.

PYTHON ?= python3
PIP_FLAGS ?=
ARGS ?=

ifeq ($(OS),Windows_NT)
RUN := .venv/Scripts/python
else
RUN := .venv/bin/python
endif
PIP := $(RUN) -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS)

CORE := CMakeLists.txt $(wildcard native/*)
CLIENT := $(shell find studio/web -name node_modules -prune -o -type f -print)
STATIC := studio/src/poolgrad_studio/static/index.html
STUDIO := studio/pyproject.toml studio/build_client.py $(shell find studio/src -name '*.py')
SOURCES := pyproject.toml $(CORE) $(shell find src -name '*.py' -o -name '*.pyi')

.PHONY: help demo studio test test-studio test-gpu lint bench bench-docs bench-dask bench-gpu sanitize cross clean

help:
	@echo "make demo        the documented examples, explained, and a picture of a larger one"
	@echo "make test        every test, beside the real PyTorch, TensorFlow and JAX (ARGS='-k name' narrows it)"
	@echo "make studio      the browser editor, built and installed into .venv (needs Node); .venv/bin/poolgrad studio starts it"
	@echo "make test-studio its tests alone: Python, Vitest, and Chromium where there is one"
	@echo "make lint        ruff, mypy, and the C++ core compiled for other systems and processors"
	@echo "make bench       speed and error beside the peers (ARGS=--quick for a first look)"
	@echo "make bench-docs  every table and plot of docs/performance.md"
	@echo "make bench-dask  what Dask adds to the bare calls, and what travels between its workers"
	@echo "make test-gpu    the GPU engine, on a machine that has one"
	@echo "make bench-gpu   its speed beside the peers there"
	@echo "make sanitize    the core under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer"
	@echo "make cross       only the compilation for other systems and processors"
	@echo "make clean       remove everything made here"

# CMake and Ninja come from PyPI too: the machine needs only Python, make and a C++ compiler. jaxlib lends its headers to the
# kernel of poolgrad.jax, which is left out where there is no jaxlib.
.venv/.tools: pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) "scikit-build-core>=0.10" "nanobind>=2.4" "numpy>=2" cmake ninja
	$(PIP) jaxlib || echo "no jaxlib for this machine: poolgrad.jax will use JAX's own operations"
	@touch $@

.venv/.package: .venv/.tools $(SOURCES)
	$(PIP) --no-build-isolation .
	@touch $@

# The package is there already, so this installs only what the extra names.
.venv/.extra-%: .venv/.tools | .venv/.package
	$(PIP) "poolgrad[$*]"
	@touch $@

demo: .venv/.package .venv/.extra-cli .venv/.extra-plot
	$(RUN) -m poolgrad demo

# ONNX Runtime's training package, which cannot share an environment with ONNX Runtime. Where it cannot be installed, the
# test that needs it says so.
.venv-ort/.made:
	$(PYTHON) -m venv .venv-ort
	.venv-ort/bin/python -m pip install --quiet --disable-pip-version-check $(PIP_FLAGS) "onnxruntime-training==1.19.2" onnx \
		|| rm -rf .venv-ort
	@mkdir -p .venv-ort && touch $@

test: .venv/.package $(addprefix .venv/.extra-,cli plot test peers volumes dask) .venv-ort/.made
	$(RUN) -m pytest --pyargs poolgrad tests $(ARGS)
	$(if $(ARGS),,@if command -v npm >/dev/null; then $(MAKE) test-studio; else echo "there is no npm: the studio is not tested"; fi)

# Not `npm ci`: it insists on the binaries of every other system too, which a mirror may lack. The lock file holds here as well.
$(STATIC): $(CLIENT)
	cd studio/web && npm install --no-save && npm run build
	@touch $@

# The wheel takes the client as it was just built.
.venv/.studio: .venv/.package .venv/.extra-cli $(STATIC) $(STUDIO)
	$(PIP) "./studio[test]"
	@touch $@

studio: .venv/.studio

# Without a browser its tests are skipped, and say so; on a bare machine that we may change, Debian's is installed.
.venv/.chromium:
	@command -v chromium || command -v chromium-browser || command -v google-chrome || test -n "$$CHROMIUM" \
		|| { test "$$(id -u)" = 0 && command -v apt-get && apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } \
		|| echo "there is no Chromium: the tests in a browser will be skipped"
	@touch $@

test-studio: .venv/.studio .venv/.chromium
	$(RUN) -m pytest --pyargs poolgrad_studio studio/tests $(ARGS)
	cd studio/web && npm run check && npm test

lint: .venv/.extra-lint cross
	$(RUN) -m ruff check .
	$(RUN) -m mypy

cross: .venv/.cross

.venv/.cross: .venv/.extra-lint scripts/cross.py $(CORE)
	$(RUN) scripts/cross.py
	@touch $@

bench: .venv/.package .venv/.extra-cli .venv/.extra-plot .venv/.extra-peers
	$(RUN) -m poolgrad bench --output build/bench $(ARGS)
	$(RUN) -m poolgrad.bench.tensorflow --output build/bench $(filter --quick,$(ARGS))
	$(RUN) -m poolgrad.bench.jax --output build/bench $(filter --quick,$(ARGS))
	$(RUN) -m poolgrad.bench.scipy --output build/bench $(filter --quick,$(ARGS))

bench-docs: .venv/.package .venv/.extra-cli .venv/.extra-plot .venv/.extra-peers
	$(RUN) -m poolgrad bench --docs
	$(RUN) -m poolgrad bench --docs --dtype float64,float16,bfloat16
	$(RUN) -m poolgrad bench --docs --direction forward
	$(RUN) -m poolgrad bench --docs --batch-divisor 8
	$(RUN) -m poolgrad bench --docs --allocate
	$(RUN) -m poolgrad bench --docs --tiny --direction gradient,forward
	$(RUN) -m poolgrad.bench.tensorflow --docs
	$(RUN) -m poolgrad.bench.jax --docs
	$(RUN) -m poolgrad.bench.scipy --docs

bench-dask: .venv/.package .venv/.extra-dask
	$(RUN) -m poolgrad.bench.dask --output build/bench-dask $(ARGS)

# On a machine with a GPU, from the source tree and with whatever Python has PyTorch, CuPy or JAX there: nothing is installed.
GPU_RUN := PYTHONPATH=src POOLGRAD_ENGINE=numpy $(PYTHON)

test-gpu:
	$(GPU_RUN) -m pytest -q --confcutdir=tests/gpu tests/gpu $(ARGS)

bench-gpu:
	$(GPU_RUN) -m poolgrad.bench.gpu --output build/bench-gpu $(ARGS)
	$(GPU_RUN) -m poolgrad.bench.jax_gpu --output build/bench-gpu

sanitize: .venv/.package .venv/.extra-test
	scripts/sanitize.sh $(RUN)

clean:
	rm -rf studio/dist studio/src/poolgrad_studio/static studio/web/node_modules
	rm -rf .venv .venv-ort .sanitize build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
