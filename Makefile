# Two commands: `make demo` and `make test`. Both set up .venv first; a second call does not install again.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RAY := $(VENV)/.installed-ray
MUTATION := $(VENV)/.installed-mutation
EXTRAS := test
RUN := runs/demo
# tests flush thousands of small files: in memory, where 4 GB of it can be had as a folder
MEMORY := $(shell [ -w /dev/shm ] && [ "$$(df -Pk /dev/shm | awk 'END {print $$4}')" -gt 4000000 ] && echo /dev/shm)
SEED ?= 0

.PHONY: setup demo test lint coverage soak mutation docs clean

setup: $(STAMP)

# uv where it is there, venv and pip otherwise; requirements.lock pins versions, pyproject.toml names packages
$(STAMP) $(RAY) $(MUTATION): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "pmtrans needs Python 3.10 or newer: make PYTHON=python3.12 ...")'
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv -q --allow-existing --python $(PYTHON) $(VENV) && \
	  uv pip install -q --python $(BIN)/python -c requirements.lock -e '.[$(EXTRAS)]'; \
	else \
	  $(PYTHON) -m venv $(VENV) && \
	  $(BIN)/python -m pip install -q --disable-pip-version-check -c requirements.lock -e '.[$(EXTRAS)]'; \
	fi
	@touch $@

demo: setup
	$(BIN)/pmtrans demo --out $(RUN) --seed $(SEED)

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

test: lint
	$(if $(MEMORY),TMPDIR=$(MEMORY)) OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal -rs

# the lines that no test runs, in the terminal and as pages in htmlcov/
coverage: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov=src/pmtrans --cov-report=term-missing:skip-covered --cov-report=html

# the long fault campaigns; Ray is large and no other target needs it
$(RAY): private EXTRAS := test,ray
$(RAY): | $(STAMP)
soak: $(RAY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak.py --report runs/soak.json
	PMTRANS_FUZZ=20 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/hostile tests/data/reading -rs
	PMTRANS_SOAK=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/bench/test_suite_ray.py tests/processes/test_file_map.py tests/inference/test_divided_prediction.py tests/processes/test_two_agents.py tests/training/test_plan_memory.py -rs

# which changes of the mathematics no test notices: about half an hour
$(MUTATION): private EXTRAS := test,mutation
$(MUTATION): | $(STAMP)
mutation: $(MUTATION)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/mutation.py --survivors

# the site; mkdocs and its theme come with the extra `docs`
docs: setup
	$(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site htmlcov .coverage .mypy_cache .ruff_cache .pytest_cache
