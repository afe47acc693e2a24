# Two commands, each complete on a fresh machine with Python 3.11 or later and a C compiler:
#   make demo               train, parse and score a parser on real Turkish trees
#   make demo OFFLINE=1     the same on the small English treebank in data/, without a download
#   make test               linter, formatter, and all tests
# And where the treebanks are in ../shared:
#   make bench ONLY=da      kernels, and parsers trained on these treebanks, beside public peers
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH := .venv-bench
OUT := out
ONLY ?= latin,ptb
LANGUAGE := $(if $(OFFLINE),english,turkish)

.PHONY: demo test test-fast bench lint build clean debug

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed")'
	$(PYTHON) -m venv $(VENV)

PIP := python -m pip install --quiet --disable-pip-version-check

# What a user installs: the package, its compiled kernels, and nothing else.
$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/$(PIP) -e $(if $(OFFLINE),.,".[demo]")
	touch $@

# What a developer needs besides.
$(VENV)/.developer: pyproject.toml | $(VENV)/bin/python
	$(BIN)/$(PIP) -e ".[dev]"
	touch $@ $(VENV)/.installed

build: $(VENV)/.developer ## compile the kernels whose sources changed
	$(BIN)/python -W ignore -c "from setuptools import setup; setup()" -q build_ext --inplace

demo: $(VENV)/.installed ## with OFFLINE=1 nothing but the package itself is installed
	$(if $(OFFLINE),,$(BIN)/python -c 'import importlib.metadata as m; m.distribution("turkish-treebanks")' 2>/dev/null || $(BIN)/$(PIP) turkish-treebanks)
	$(BIN)/python data/split.py $(LANGUAGE) $(OUT)
	$(BIN)/parser train $(OUT)/$(LANGUAGE)-train.conllu -o $(OUT)/$(LANGUAGE).model
	$(BIN)/parser parse $(OUT)/$(LANGUAGE).model $(OUT)/$(LANGUAGE)-test.conllu -o $(OUT)/$(LANGUAGE)-parsed.conllu
	$(BIN)/parser eval $(OUT)/$(LANGUAGE)-test.conllu $(OUT)/$(LANGUAGE)-parsed.conllu
	@echo
	$(BIN)/parser eval $(OUT)/$(LANGUAGE)-test.conllu --model $(OUT)/$(LANGUAGE).model --engine grandsibling --engine hill-climbing
	@echo
	$(BIN)/parser show $(OUT)/$(LANGUAGE)-parsed.conllu --sentence 2

test: build lint ## everything, slow tests too
	$(BIN)/python -m pytest

test-fast: build
	$(BIN)/python -m pytest -m "not slow"

lint: $(VENV)/.developer
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# An environment of its own, so that no peer is ever part of ours.
$(BENCH)/.installed: pyproject.toml tests/benchmarks/requirements.txt | $(VENV)/.developer
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/$(PIP) -e .
	grep -v '^#' tests/benchmarks/requirements.txt | while read -r peer; do \
		$(BENCH)/bin/$(PIP) "$$peer" \
		|| echo "$$peer could not be installed; going on without it"; done
	touch $@

bench: build $(BENCH)/.installed ## kernels, then parsers trained on ONLY, beside public peers
	$(BENCH)/bin/python tests/benchmarks/kernels.py
	mkdir -p $(OUT)
	$(BENCH)/bin/python tests/benchmarks/parsers.py --only $(ONLY) --json $(OUT)/parsers.json

debug: ## bounds checks on; cleans after, as a debug .so looks up to date
	rm -rf build cython_ext/*.so
	PARSER_CYTHON_DEBUG=1 $(MAKE) build
	$(BIN)/python -m pytest -m "not slow"
	rm -rf build cython_ext/*.so

clean:
	rm -rf build dist *.egg-info cython_ext/*.so $(VENV) $(BENCH) $(OUT)
