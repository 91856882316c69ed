# `make help` lists what there is. Nothing needs to be installed first but Python
# 3.11, 3.12 or 3.13 and make: each target sets up its own virtual environment.

VENV ?= .venv
JOBS ?= 2
# Empty means: the default python3 if it is supported, else the newest one that is.
PYTHON ?=

bin := $(VENV)/bin
# The stamps carry the name of the Python, so naming another one makes a new environment.
made := $(VENV)/.made-with-$(subst /,_,$(PYTHON))
pip := $(bin)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help demo test check format pytest clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Another Python or place:  make test PYTHON=python3.13 VENV=.venv-313"

demo: $(VENV)/.installed  ## set up, then train a small transformer and explain its step
	$(bin)/tilejax demo

test: check pytest  ## set up, then run every check and every test

check: $(VENV)/.installed-test  ## lint, formatting and types
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/pyright --pythonpath $(bin)/python

format: $(VENV)/.installed-test  ## format the code and sort its imports
	$(bin)/ruff check --fix .
	$(bin)/ruff format .

pytest: $(VENV)/.installed-test  ## the tests, doctests, examples and tiny benchmarks
	$(bin)/python -m pytest -n $(JOBS) --durations=10

clean:  ## remove the environment and what builds leave behind
	@test ! -f $(VENV)/pyvenv.cfg || rm -rf $(VENV)
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

$(made):
	@test ! -e $(VENV) || test -f $(VENV)/pyvenv.cfg || \
	  { echo "$(VENV) exists and is not a virtual environment; name another VENV" >&2; exit 1; }
	@python="$(PYTHON)"; test -n "$$python" || python=$$(.ci/pythons | sed -n 1p); \
	  test -n "$$python" || { echo "Name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 1; }; \
	  echo "Setting up $(VENV) with $$("$$python" --version)"; \
	  "$$python" -m venv --clear $(VENV)
	@touch $@

$(VENV)/.installed: $(made) pyproject.toml setup.py
	$(pip) --editable .
	@touch $@

$(VENV)/.installed-test: $(made) pyproject.toml setup.py
	$(pip) --editable '.[test]'
	@touch $@ $(VENV)/.installed
