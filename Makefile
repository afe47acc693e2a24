# Two commands, each complete on a fresh machine with Python 3.11 or later and a C compiler:
#   make demo               train, parse and score a parser on real Turkish trees
#   make demo OFFLINE=1     the same on the small English treebank in data/, without a download
#   make test               linter, formatter, and all tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OUT := out
LANGUAGE := $(if $(OFFLINE),english,turkish)

.PHONY: demo test test-fast bench lint build clean debug

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	touch $@

build: $(VENV)/.installed ## compile the kernels whose sources changed
	$(BIN)/python -W ignore -c "from setuptools import setup; setup()" -q build_ext --inplace

$(OUT)/turkish: | build
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[demo]"

$(OUT)/english: | build

demo: $(OUT)/$(LANGUAGE)
	$(BIN)/python data/split.py $(LANGUAGE) $(OUT)
	$(BIN)/parser train $(OUT)/$(LANGUAGE)-train.conllu -o $(OUT)/$(LANGUAGE).model
	$(BIN)/parser parse $(OUT)/$(LANGUAGE).model $(OUT)/$(LANGUAGE)-test.conllu -o $(OUT)/$(LANGUAGE)-parsed.conllu
	$(BIN)/parser eval $(OUT)/$(LANGUAGE)-test.conllu $(OUT)/$(LANGUAGE)-parsed.conllu
	@echo
	$(BIN)/parser eval $(OUT)/$(LANGUAGE)-test.conllu --model $(OUT)/$(LANGUAGE).model --engine mst --engine projective
	@echo
	$(BIN)/parser show $(OUT)/$(LANGUAGE)-parsed.conllu --sentence 2

test: build lint ## everything, slow tests too
	$(BIN)/python -m pytest

test-fast: build
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

debug: ## bounds checks on; cleans after, as a debug .so looks up to date
	rm -rf build cython_ext/*.so
	PARSER_CYTHON_DEBUG=1 $(MAKE) build
	$(BIN)/python -m pytest -m "not slow"
	rm -rf build cython_ext/*.so

clean:
	rm -rf build dist *.egg-info cython_ext/*.so $(VENV) $(OUT)
