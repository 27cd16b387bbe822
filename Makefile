# The README's commands. Each sets up what it needs: Python >= 3.11 with venv is all that has to be there.

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: help demo serve test check soak bench volume format clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(BIN)/lethe: pyproject.toml
	python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(BIN)/lethe
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(BIN)/lethe  ## a scripted agent through the real proxy under four policies: no key needed
	$(BIN)/lethe demo $(ARGS)

# Before anything is installed.
ifneq ($(filter serve,$(MAKECMDGOALS)),)
ifeq ($(UPSTREAM),)
$(error say where to: make serve UPSTREAM=https://api.example.com)
endif
endif

serve: $(BIN)/lethe  ## the proxy: make serve UPSTREAM=https://api.example.com
	$(BIN)/lethe serve --upstream "$(UPSTREAM)" $(ARGS)

test: $(VENV)/.dev  ## all tests, on a real Redis-protocol server
	$(BIN)/python -m pytest $(ARGS)

check:  ## all that must hold before a change lands
	.ci/run

soak: $(VENV)/.dev  ## 200 conversations of 20 steps over two workers and one store
	SOAK_CONVERSATIONS=200 SOAK_STEPS=20 $(BIN)/python -m pytest tests/journey/test_many_workers.py $(ARGS)

bench: $(VENV)/.dev  ## direct, nginx and Lethe side by side over loopback, as ratios
	$(BIN)/python -m tests.bench $(ARGS)

volume: $(VENV)/.dev  ## 100,000 made-up sessions through lethe replay: seconds and memory
	$(BIN)/python -m tests.replay.many $(ARGS)

format: $(VENV)/.dev  ## let ruff put things right
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist *.egg-info .coverage
