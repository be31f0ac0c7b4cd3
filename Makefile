# The task list. Everything lands in .venv; nothing outside this directory is written except
# pip's cache. `make` alone prints the list.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SUITES := $(wildcard tests/docs tests/hostile tests/integration tests/contract tests/unit)
# The caller's environment decides nothing about the tests.
CLEAN := scripts/clean-env.sh
RUNNER := -m pytest
PYTEST := $(CLEAN) $(BIN)/python $(RUNNER)
# Four workers, because half of their time they wait; the tests of one file stay together, because
# they share a server. The files that take long come first, so that all workers end together.
PARALLEL := --numprocesses=4 --dist=loadfile --no-loadscope-reorder
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install wheel demo test test-slow test-chaos test-paddle test-all check format docs bench lock clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(READY) ## put the project and its tools into .venv, exactly as locked
	@echo "ready: bin/paddlecloud"

# pip goes first: the newer one writes console scripts that start faster. setuptools goes away,
# because its start-up hook would run in every command. paddlecloud-only: no job gets this environment.
$(READY): pyproject.toml requirements-dev.lock scripts/find-python.sh
	@echo "installing into $(VENV); the first time this takes a minute or two ..."
	@python=$$(sh scripts/find-python.sh) && "$$python" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@$(BIN)/python -m pip uninstall -qq --disable-pip-version-check --yes setuptools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src/paddlecloud
	@touch $(VENV)/paddlecloud-only $@

wheel: install ## build dist/paddlecloud-VERSION-py3-none-any.whl
	@rm -rf dist
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

demo: install ## run an example job from submit to results on this machine
	@sh scripts/demo.sh

test: install ## the fast tests (under 3 minutes)
	$(PYTEST) $(SUITES) $(PARALLEL) -m "not slow and not chaos and not bench" $(ARGS)

test-slow: install ## the slow tests, with new random examples
	$(PYTEST) tests $(PARALLEL) -m "slow and not chaos and not bench" --hypothesis-profile=explore $(ARGS)

test-chaos: install ## the tests that kill our own processes at random moments
	$(PYTEST) tests $(PARALLEL) --numprocesses=2 -m "chaos and not bench" $(ARGS)

test-paddle: install ## the examples with real PaddlePaddle, installed into the user's cache
	$(PYTEST) tests/paddle $(ARGS)

test-all: test test-slow test-chaos test-paddle ## every test, the slow and the destructive ones too

check: install ## everything a machine can say about the code without running it
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy src/paddlecloud tests $(wildcard bench)
	$(BIN)/lint-imports --no-logo
	$(BIN)/python scripts/check_words.py

format: install ## let ruff rewrite what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: install ## write the generated pages of docs/reference
	$(BIN)/python scripts/gen_reference.py

bench: install ## measure speed and memory, print the table
	$(BIN)/python -m bench $(ARGS)

lock: ## write the lock files (ARGS=--upgrade takes newer versions)
	sh scripts/lock.sh $(ARGS)

clean: ## remove the environment and every cache
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
