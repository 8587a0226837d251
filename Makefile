# Everything that this repository can do, from a bare clone. `make` alone lists it.
# ARGS is handed on: make demo ARGS=--json, make test ARGS='-k formats'.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
INSTALL := $(PY) -m uv pip install --quiet --python $(PY) -c constraints.txt
ARGS ?=
unexport PYTHONDONTWRITEBYTECODE  # each process that a test starts would compile all that it imports

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-fleet check generate docs pictures stack up down bench fuzz lock clean

help:  ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## a few dozen turns of real SDK agents against a scripted provider; no keys, no network
	@$(VENV)/bin/endturn demo $(ARGS)

PARALLEL := -n auto --dist loadfile --no-loadscope-reorder
PYTEST := $(PY) -m pytest $(PARALLEL)
FAST := -m 'not fleet and not stack and not environments and not slow and not browser'

test: $(VENV)/.dev  ## the fast tests
	$(PYTEST) $(FAST) $(ARGS)

test-all: test  ## and those that need the native stack (Go, Java, Node), other SDKs (it builds them), Chromium, other Pythons or the lowest versions; slow ones
	@command -v chromium chromium-browser google-chrome >/dev/null || { apt-get -qq update && apt-get -qq install -y chromium; }
	@command -v mvn >/dev/null || { apt-get -qq update && apt-get -qq install -y maven; }
	@$(PY) stack/build.py
	@$(PY) tests/sdks/build.py
	$(PYTEST) -m '(stack or environments or slow or browser or hypothesis) and not fleet' --hypothesis-profile=long $(ARGS)
	@$(PY) tests/lowest.py $(PARALLEL) $(FAST)
	@$(PY) tests/pythons.py $(PARALLEL) $(FAST) $(ARGS)

test-fleet: $(VENV)/.dev  ## a fleet under load, and its parts killed one by one (ENDTURN_FLEET_TURNS=100000: as many turns)
	@command -v mvn >/dev/null || { apt-get -qq update && apt-get -qq install -y maven; }
	@$(PY) stack/build.py collector prometheus alertmanager thanos kafka
	$(PY) -m pytest tests/fleet $(ARGS)

check: $(VENV)/.dev  ## format, lint, types, layers, sizes, and that generated files are current
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/endturn generate --check
	$(PY) .ci/sizes.py

generate: $(VENV)/.dev  ## write dashboards, rules, rule tests and reference documents anew
	$(VENV)/bin/endturn generate $(ARGS)

docs: $(VENV)/.dev  ## the documentation as a site, in `site/` (ARGS=--open: serve it while it is edited)
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs $(if $(filter --open,$(ARGS)),serve,build)

pictures: $(VENV)/.dev  ## draw the pictures of the documentation anew, in Chromium and Graphviz (ARGS=page: one of them; ARGS=--help: which there are)
	@command -v dot >/dev/null || { apt-get -qq update && apt-get -qq install -y graphviz; }
	@command -v chromium chromium-browser google-chrome >/dev/null || { apt-get -qq update && apt-get -qq install -y chromium; }
	$(PY) docs/pictures.py $(ARGS)

stack: $(VENV)/.dev  ## build Collector, Prometheus, Alertmanager, Thanos and Kafka natively, at the versions that compose pins
	$(PY) stack/build.py $(ARGS)

up:  ## Collector, Prometheus, Alertmanager, Tempo, Loki and Grafana, by Docker Compose, on loopback (ARGS=--lgtm: in two)
	@$(PYTHON) stack/compose.py up $(ARGS)

down:  ## stop them; the data stays (ARGS=--volumes drops it)
	@$(PYTHON) stack/compose.py down $(ARGS)

bench: $(VENV)/.dev  ## what instrumenting costs, beside the same signals by hand and other instrumentations (ARGS=--quick: in two minutes)
	@$(PY) -m benchmarks.overhead $(ARGS)

fuzz: $(VENV)/.dev  ## damaged replies into every decoder, a hundred thousand of them and others each time
	$(PYTEST) tests/formats/test_format_laws.py -k damaged --hypothesis-profile=long $(ARGS)

lock: $(VENV)/.base  ## move constraints.txt to the newest versions that fit (ARGS='--upgrade-package openai': one)
	$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --extra all --extra demo --group dev --no-annotate \
	  --custom-compile-command 'make lock' --output-file constraints.txt pyproject.toml $(or $(ARGS),--upgrade)

clean:  ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.base: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'endturn needs Python 3.11 or later; say which with: make PYTHON=/path/to/python3'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet -c constraints.txt uv  # installs the rest in seconds
	@touch $@

$(VENV)/.demo: $(VENV)/.base pyproject.toml
	$(INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base pyproject.toml
	$(INSTALL) -e '.[all,demo]' --group dev
	@touch $@ $(VENV)/.demo
