# SPDX-License-Identifier: Apache-2.0
#
# Every target sets itself up: it needs python3 (3.11 or newer) with venv, make, and a package index.

PYTHON ?= python3
VENV   := .venv
OLDEST := .venv-oldest

# What the oldest supported SDK has to pass too: all that touches an SDK.
OLDEST_TESTS := $(wildcard tests/processor tests/spans/test_live.py tests/spans/test_otlp_round_trip.py)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The frameworks that the guard stands in front of, each in an environment of its own: its dependency group in pyproject.toml,
# and tests/frameworks/test_NAME.py; NAME-VERSION tests another major of NAME.
FRAMEWORKS := $(shell sed -n 's/^framework-\([a-z0-9_]*\) = .*/\1/p' pyproject.toml)
PREVIOUS   := $(shell sed -n 's/^framework-\([a-z0-9_]*-[0-9]*\) = .*/\1/p' pyproject.toml)

.PHONY: help demo test test-newest test-oldest test-frameworks test-frameworks-previous lint bench picture clean
.PHONY: $(FRAMEWORKS:%=test-framework-%) $(PREVIOUS:%=test-framework-%)
.SECONDARY:

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-25s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/demo.stamp ## An agent refunds twice, then once: nothing leaves this machine, no key is needed
	@$(VENV)/bin/python -m examples.demo

test: test-newest test-oldest ## All tests, on the newest and on the oldest supported SDK

test-newest: $(VENV)/test.stamp ## All tests on the newest SDK
	$(VENV)/bin/python -m pytest $(PYTEST_ARGS)

test-oldest: $(OLDEST)/test-oldest.stamp ## The processor's tests on the oldest supported SDK
	$(OLDEST)/bin/python -m pytest $(PYTEST_ARGS) $(OLDEST_TESTS)

test-frameworks: $(FRAMEWORKS:%=test-framework-%) ## The guard in front of each framework, in an environment for each

test-frameworks-previous: $(PREVIOUS:%=test-framework-%) ## The same for the majors before, where they are in use

$(FRAMEWORKS:%=test-framework-%) $(PREVIOUS:%=test-framework-%): test-framework-%: .venv-frameworks/%/framework.stamp
	$(<D)/bin/python -m pytest $(PYTEST_ARGS) $(wildcard tests/frameworks/test_$(firstword $(subst -, ,$*))*.py)

lint: $(VENV)/lint.stamp ## ruff and mypy
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: $(VENV)/bench.stamp ## Measure what it costs, on this machine
	$(VENV)/bin/python -m benchmarks

picture: $(VENV)/demo.stamp ## Draw the demo's picture anew, and the README's copy of its output
	$(VENV)/bin/python -m examples.demo.picture

clean: ## Remove everything that the other targets made
	rm -rf $(VENV) $(OLDEST) .venv-frameworks build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each dependency group of pyproject.toml (pip reads groups from 25.1 on).
.SECONDEXPANSION:

%.stamp: pyproject.toml | $$(@D)/pip.stamp
	$(@D)/bin/python -m pip install --quiet --editable '.[cli]' --group $(basename $(@F))
	@touch $@

.venv-frameworks/%/framework.stamp: pyproject.toml | .venv-frameworks/%/pip.stamp
	$(@D)/bin/python -m pip install --quiet --editable . --group framework-$*
	@touch $@

%/pip.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is no Python 3.11 or newer: name one, as in 'make PYTHON=python3.12 test'" >&2; exit 1; }
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@
