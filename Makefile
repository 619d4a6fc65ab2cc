# Every target sets up what it needs. Only Python 3.11+, make and git are assumed.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SPEC ?= blueprints/chat-70b.yaml

.PHONY: plan test check check-lint check-types check-rules check-accuracy fit accuracy bench brute-force reliability docs docs-check live-test cloud-test browser-test clean

plan: $(VENV)/.base
	$(BIN)/tonnage plan $(SPEC)

# Workers keep whole modules, whose tests share much, until one of them has nothing left to do.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n auto --dist worksteal -q

# Four parts, which `make -j2 check` runs side by side.
check: check-lint check-types check-rules check-accuracy

check-lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.10 stacks/runtime/vm/node stacks/*/node.py

check-rules: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_style.py

check-accuracy: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.accuracy --check

docs: $(VENV)/.dev
	$(BIN)/python -m planner.cli.reference

docs-check: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/test_docs.py

fit: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.accuracy.fit

accuracy: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.accuracy

bench: $(VENV)/.dev
	$(BIN)/python -m tests.bench

# The cheapest serving fleet of 5,000 random cases against all that there are, and of 5,000 that are
# bought in several ways over a week: two hours of a core.
brute-force: $(VENV)/.dev
	TONNAGE_BRUTE_CASES=5000 $(BIN)/python -m pytest -n auto -q -k brute_force tests/planner/solve

# Where the pulumi program is on PATH, the real engine is measured too.
reliability: $(VENV)/.dev
	$(BIN)/python -m tests.reliability

# Only asks: what your own account answers has the shapes that are expected, and how far prices are off.
live-test: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(CLOUD)]"
	TONNAGE_CLOUD=$(CLOUD) TONNAGE_STACK=$(STACK) $(BIN)/python -m pytest -q -s -p no:randomly tests/cloud/test_live.py

# One small machine of your own account, an hour of it, and everything destroyed at the end.
cloud-test: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[$(CLOUD)]"
	TONNAGE_CLOUD=$(CLOUD) $(BIN)/python -m pytest -q -p no:randomly tests/cloud/test_machine.py

# Reports and pages in Chromium, which has to be on PATH: what it loads, how it reads, what axe-core says.
browser-test: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group browser
	$(BIN)/python -m pytest -q tests/planner/render/html/test_report_browser.py tests/planner/cli/test_serve_browser.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# The simulation is compiled where there is a C compiler; elsewhere it is interpreted, and plans take
# twice as long. Python imports what is compiled in place of its source, so the old one is removed first.
$(VENV)/.base: $(VENV)/bin/python pyproject.toml planner/perf/serving/simulation.py
	@find planner -name 'simulation*.so' -delete
	@echo "installing tonnage into $(VENV), and compiling its simulation"
	@HATCH_BUILD_HOOK_ENABLE_MYPYC=true $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . \
		> $(VENV)/compile.log 2>&1 || { \
		echo "the simulation is not compiled, so plans take twice as long: see $(VENV)/compile.log" >&2; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .; }
	touch $@

# pip learned --group in 25.1, so it is brought up to date first.
$(VENV)/.dev: $(VENV)/.base
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[pulumi]" --group dev --group clients
	touch $@

clean:
	find planner -name 'simulation*.so' -delete
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
