PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test quick lint format bench clean

demo: $(VENV)/.demo
	$(BIN)/python recipes/play_every_game.py

test: lint
	$(BIN)/python -m pytest -n 2

quick: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not slow"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/env_step.py

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# A stamp an installed set of extras, so that nothing is installed twice; pip reads names and the constraints only.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[dev]'
	touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
