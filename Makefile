# Everything a person or a robot runs here. Needs only make and Python >= 3.11: each target
# sets up what it lacks, once, in .venv; the logs of set-up are in .make/.

PYTHON ?= python3
# Compiled once and kept beside the sources, not again in each of the thousand processes of a run.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
STEP := sh .ci/step
TYPES := $(STEP) "Checking types" .make/types.log $(BIN)/mypy
# In the order of the folders, so that no long end-to-end file is left for one worker at the end.
PYTEST := sh .ci/pytest $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder
# What is installed is pinned, and checked by its SHA-256 (all but torch: deploy/lock.py says why).
INSTALL := sh .ci/install $(BIN)/python
# Done once, and again when what they depend on has changed.
VENV_READY := $(VENV)/.ready
RUNTIME_READY := $(VENV)/.runtime-ready
DEV_READY := $(VENV)/.dev-ready
# npm's packages are pinned, and checked by their SHA-512, in package-lock.json.
OIDC_PROVIDER := tests/support/oidc_provider
OIDC_PROVIDER_READY := $(OIDC_PROVIDER)/node_modules/.ready

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-full test-cloud test-tensorflow check static simulate simulate-mutants \
	decisions bench bench-trainer docs-regenerate lock sbom browser oidc-provider clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1|/' \
		| awk -F'|' '{printf "%-26s%s\n", $$1, $$2}'

demo: $(RUNTIME_READY) ## train a model through an interruption, on this machine, and print the bill
	@$(BIN)/lowtide demo

# Six workers on two cores, as tests of real processes wait half of their time. Types are checked
# beside them, as that takes a minute and a half of one core where nothing is cached; and tests are
# compiled and collected once, as six workers would all do it
# (tests/support/plugins/late_modules.py).
test: $(DEV_READY) browser ## run every check and every test but the long ones
	@$(TYPES) >.make/types.line 2>&1 & types=$$!; \
	$(MAKE) --no-print-directory static && \
	$(STEP) "Collecting the tests" .make/collected.log \
		$(BIN)/python -m pytest --collect-only -qq --collected .make/collected.json tests \
	&& $(PYTEST) -n 6 --collected .make/collected.json tests; tests=$$?; \
	wait $$types; types=$$?; \
	cat .make/types.line; exit $$((tests | types))

test-full: $(DEV_READY) browser oidc-provider static ## run the long tests, too
	@$(TYPES)
	@$(PYTEST) -n 4 --full tests
	@sh .ci/record-full-run

test-cloud: $(DEV_READY) ## run the provider tests against real accounts, where some are named
	@$(BIN)/python -m tests.cloud

test-tensorflow: $(DEV_READY) ## run the TensorFlow example through an interruption (300 MB, in a venv of its own)
	@test -d .venv-tensorflow || $(PYTHON) -m venv .venv-tensorflow
	@$(STEP) "Installing TensorFlow in .venv-tensorflow" .make/tensorflow.log .venv-tensorflow/bin/python \
		-m pip install --disable-pip-version-check --no-input \
		$$(sed 's/\[and-cuda\]//' docs/examples/tensorflow/requirements.txt)
	@$(BIN)/python -m tests.examples tensorflow $(CURDIR)/.venv-tensorflow/bin/python

check: $(DEV_READY) static ## the quick part: format, lint, types, imports, unit tests
	@$(TYPES) >.make/types.line 2>&1 & types=$$!; \
	$(PYTEST) -n 2 tests/unit tests/property tests/architecture; tests=$$?; \
	wait $$types; types=$$?; cat .make/types.line; exit $$((tests | types))

static: $(DEV_READY)
	@$(STEP) "Checking the format" .make/format.log $(BIN)/ruff format --check .
	@$(STEP) "Linting" .make/lint.log $(BIN)/ruff check .
	@$(STEP) "Checking imports between rooms" .make/imports.log $(BIN)/lint-imports

simulate: $(DEV_READY) ## simulate 300 hours with faults (SWEEP="--seeds 50"); goes on where it stopped
	@$(BIN)/python -m app.simulation.sweep $(SWEEP)

simulate-mutants: $(DEV_READY) ## break the control plane line by line; the simulator has to notice
	@$(BIN)/python -m tests.mutants $(MUTANTS)

decisions: $(DEV_READY) ## make every recorded decision about machines again (DECISIONS="count")
	@$(BIN)/python -m tests.decisions $(or $(DECISIONS),replay)

bench: $(DEV_READY) ## measure against plain baselines; prints a table, writes JSON
	@$(BIN)/python -m tests.bench

bench-trainer: $(DEV_READY) ## measure the trainer: checkpoints, drains, exact resume, goodput
	@$(BIN)/python -m tests.bench_trainer

docs-regenerate: $(DEV_READY) ## rewrite the pages that are generated from code
	@$(BIN)/python -m app.domain.state_diagrams > .make/page && mv .make/page docs/state-machines.md
	@$(BIN)/python -m app.settings > .make/page && mv .make/page docs/settings.md
	@$(BIN)/python -m trainer.protocol.train_options > .make/page && mv .make/page docs/trainer-options.md
	@$(BIN)/python -m tests.support.stories.notice_path > .make/page && mv .make/page docs/notice-to-launch.md

lock: $(DEV_READY) ## ask PyPI for the hashes of every pin: after a change of constraints.txt
	@$(STEP) "Writing requirements.lock" .make/lock.log $(BIN)/python deploy/lock.py

sbom: $(RUNTIME_READY) $(DEV_READY) ## list what the runtime consists of: sbom.json, CycloneDX
	@$(STEP) "Writing sbom.json" .make/sbom.log $(BIN)/python deploy/sbom.py sbom.json

browser:
	@sh .ci/browser

oidc-provider: $(OIDC_PROVIDER_READY)

clean: ## remove the virtual environment, caches and logs (never the state of `lowtide up`)
	rm -rf $(VENV) .make .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
		build dist *.egg-info $(OIDC_PROVIDER)/node_modules

$(VENV_READY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Lowtide needs Python 3.11 or newer as '$(PYTHON)';" \
			"name another one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(STEP) "Creating the virtual environment in $(VENV)" .make/venv.log \
		$(PYTHON) -m venv $(VENV)
	@touch $@

$(RUNTIME_READY): $(VENV_READY) pyproject.toml requirements.lock
	@$(STEP) "Installing Lowtide and the trainer (once; PyTorch is large)" .make/install.log \
		$(INSTALL) trainer
	@touch $@

$(DEV_READY): $(VENV_READY) pyproject.toml requirements.lock
	@$(STEP) "Installing Lowtide, the trainer and the test tools (once; PyTorch is large)" \
		.make/install-dev.log $(INSTALL) trainer,dev
	@touch $@ $(RUNTIME_READY)

$(OIDC_PROVIDER_READY): $(OIDC_PROVIDER)/package.json $(OIDC_PROVIDER)/package-lock.json
	@sh .ci/node
	@$(STEP) "Installing oidc-provider for the long tests (once)" .make/oidc-provider.log \
		npm --prefix $(OIDC_PROVIDER) ci
	@touch $@
