# Two commands need nothing but Python 3.11+ and a C compiler: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-fast bench lint build clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -e ".[dev]"
	touch $@

build: $(VENV)/.installed ## compile the kernels whose sources changed
	$(BIN)/python -W ignore -c "from setuptools import setup; setup()" -q build_ext --inplace

test: build lint ## everything, slow tests too
	$(BIN)/python -m pytest

test-fast: build
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf build dist *.egg-info cython_ext/*.so $(VENV)
