# proveout: `make run` and `make test` do all of their set-up themselves; they need make and Python 3.11 or newer.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

# The first of these that is Python 3.11 or newer; `make PYTHON=/path/to/python run` overrides it.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; exit; }; done; \
	echo no-python-3.11)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt
COMPILED := agent/engines/wire_native.pyx agent/engines/wire_native.pxd \
	agent/engines/postgres/protocol_native.pyx agent/engines/postgres/protocol_native.pxd \
	agent/engines/postgres/copy_rows_native.pyx agent/engines/mysql/protocol_native.pyx \
	agent/load/loop/arrival_schedule_native.pyx agent/load/loop/arrival_schedule_native.pxd \
	agent/load/loop/transaction_loop_native.pyx agent/engines/native_build.py
DIST ?= dist
PLAN ?= plans/hlr-cache-embedded.yaml
LAB ?= plans/netns-lab.yaml
CUT ?= $(if $(filter plans/netns-lab.yaml,$(LAB)),client2@baseline:15)
JOBS ?= 2
PART ?=
WORKERS ?= $(shell nproc)
# Without bytecode each worker compiles all tests again, and each process that a test starts compiles the sources.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.run  ## Run the main job (PLAN=… for another plan)
	@$(BIN)/proveout run $(PLAN) || { code=$$?; [ $$code -ne 3 ] || \
		echo "A verdict is undecided: the lines above say which, and what to do. The run itself was carried out; its exit code is 3."; exit $$code; }

lab: $(VENV)/.run  ## Run plans/netns-lab.yaml on hosts made of network namespaces, as root (LAB=… for another plan; CUT= leaves the cables alone)
	$(BIN)/python docs/lab/lab.py run --plan $(LAB) $(if $(CUT),--cut $(CUT))

# A whole file goes to one worker, whose fixtures its tests share; tests/conftest.py puts the longest files first. What measures real time runs
# alone, after the others, also where some of these have failed.
TOGETHER := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev  ## Run the tests (WORKERS=N at a time, one for each core), then those that measure real time, one at a time
	@failed=0; \
	$(PYTEST) $(TOGETHER) -m "not timed" || { failed=$$?; [ $$failed -ne 2 ] || exit 2; }; \
	$(PYTEST) --numprocesses 0 -m timed $$(grep -rl --include='test_*.py' 'mark\.timed' tests) || failed=$$?; \
	exit $$failed

test-fast: $(VENV)/.dev  ## Run the tests without servers, runs, screens, real time, root and repeats for many seeds: about a minute on two cores
	$(PYTEST) $(TOGETHER) -m "not server and not screen and not timed and not root and not thorough"

check: $(VENV)/.dev  ## Lint, format, types, layers, wording, generated stubs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/style/vocabulary.py
	$(BIN)/python -m proveout.proto.generate --check

bench: $(VENV)/.dev  ## Run the benchmarks, ours and the peer in one run, and write the tables of docs/performance.md (PART=NAME,… for some of them)
	$(BIN)/python benchmarks/all.py $(if $(PART),--only $(PART))
	$(BIN)/python docs/generate.py

soak: $(VENV)/.dev  ## The long tests of reliability, and all marked `soak` or `thorough`, in parts of 20 minutes at most (PART=name; root; JOBS=N at a time, 2)
	$(BIN)/python tests/soak/soak.py --jobs $(JOBS) $(PART)

docs: $(VENV)/.dev  ## Build the site of the guide and the reference into build/site; links that lead nowhere fail it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

pictures: $(VENV)/.dev  ## Take the pictures of the documentation from one run of the main plan (five minutes, on a quiet machine; chromium)
	$(BIN)/python docs/pictures.py

dist: $(VENV)/.build  ## Build the source archive, and from it the wheel, into dist/ (PROVEOUT_PURE_PYTHON=1: without compiled modules)
	$(BIN)/python -m build --no-isolation --outdir $(DIST)

stubs: $(VENV)/.dev  ## Generate the protobuf stubs
	$(BIN)/python -m proveout.proto.generate

clean:  ## Remove the environment and all caches (not runs/)
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -f agent/engines/*.so agent/engines/*/*.so agent/load/loop/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@case "$(PYTHON)" in no-python-3.11) \
		echo "proveout needs Python 3.11 or newer with the venv module (Debian: apt-get install python3-venv)" >&2; exit 1;; esac
	$(PYTHON) -m venv $(VENV)

# The dependencies of an extra are installed while the modules are compiled: each of the two leaves a core idle by itself.
define REQUIRED
import re, sys, tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
found, extras = {*project["dependencies"]}, sys.argv[1:]
for extra in extras:
    for one in project["optional-dependencies"][extra]:
        own = re.fullmatch(r"proveout\[(.*)\]", one)
        extras.extend(own[1].split(",")) if own else found.add(one)
print(*sorted(found), sep="\n")
endef
export REQUIRED
INSTALL = $(BIN)/python -c "$$REQUIRED" $(1) >$(VENV)/required.txt; \
	$(PIP) --requirement $(VENV)/required.txt & \
	$(PIP) --no-deps --editable .; ours=$$?; wait $$! && exit $$ours

$(VENV)/.run: $(BIN)/python pyproject.toml constraints.txt $(COMPILED)
	$(call INSTALL,all)
	@touch $@

$(VENV)/.build: $(BIN)/python constraints.txt
	$(PIP) build cython hatchling
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt $(COMPILED)
	$(call INSTALL,dev)
	@touch $@ $(VENV)/.run

.PHONY: help run lab test test-fast check bench soak docs pictures dist stubs clean
