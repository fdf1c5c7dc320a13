# Each target sets up what it needs, for example `make demo` or `make test`. Nothing is installed outside this folder.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
export AWS_DEFAULT_REGION ?= eu-central-1
# No target may reach a real account: demo and tests use their own credentials.
unexport AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN
# Without compiled modules, each of the many processes of the tests would compile all packages again.
unexport PYTHONDONTWRITEBYTECODE
export SAM_CLI_TELEMETRY := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo demo-all event localstack test test-deep quick check build package build-host bench figures chromium test-localstack audit lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## create .venv with all pinned dependencies; the command line is .venv/bin/evenkeel

# An interrupt ends a recipe without a traceback of a starting interpreter. make must see it before it sees the recipe's end.
interruptible = trap 'sleep 0.1; exit 130' INT
# Run a command and show its errors after its end.
quietly = $(interruptible); { errors=$$({ $(1); } 2>&1 >&3); } 3>&1 || { code=$$?; echo "$$errors" >&2; exit $$code; }

# Run a Python program in the background, where it starts with interrupts ignored. bash leaves `wait` for an interrupt at once.
waiting = trap 'kill $${!-} 2>/dev/null || :; sleep 0.1; exit 130' INT; $(1) & wait $$!

# Print how many packages are installed, every 10 seconds until the recipe's shell ends: pip prints nothing meanwhile.
installed = while sleep 10 >/dev/null && kill -0 $$$$ 2>/dev/null; do \
  n=$$(ls -d .venv/lib/python3*/site-packages/*.dist-info | wc -l); [ $$n -lt 5 ] || echo "  $$((n)) installed"; done

# pyproject.toml is a prerequisite because it defines the editable install. pip compiles no module, because Python compiles
# each at its first import. Compiling all of them would take half as long as the setup.
.venv/.ready: requirements/dev.txt pyproject.toml cli/pyproject.toml
	@$(interruptible); $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1 || true): Evenkeel needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up .venv, once, in three steps. Step 1: the environment (about 5 seconds)"
	@$(call quietly,$(PYTHON) -m venv .venv \
	  || { echo "$(PYTHON) cannot create a virtual environment: install its venv package (Debian: python3-venv)" >&2; exit 1; })
	@echo "Step 2: about 80 pinned packages (1 to 2 minutes)"
	@$(installed) & $(call quietly,$(BIN)/pip install --no-compile --progress-bar off --require-hashes --no-deps -r requirements/dev.txt \
	  | awk '/^Collecting/ && ++n % 20 == 0 {print "  " n " fetched"; fflush()} /^Installing/ {print "  installing"; fflush()}')
	@echo "Step 3: the command line (about 5 seconds)"
	@$(call quietly,$(BIN)/pip install -qq --no-deps --no-build-isolation -e . -e ./cli)
	@touch $@

# The SAM CLI pins versions that conflict with Evenkeel's, so it has its own environment.
.venv-sam/.ready: requirements/sam.txt | .venv/.ready
	@$(BIN)/python -m venv .venv-sam
	@echo "setting up .venv-sam (about a minute, once)"
	@.venv-sam/bin/pip install --no-compile -qq --require-hashes --no-deps -r requirements/sam.txt
	@touch $@

demo: setup ## simulate a zone outage without and with Evenkeel, side by side (25 seconds)
	@$(call waiting,$(BIN)/python -m sandbox.demo)

demo-all: setup ## the same outage on Gardener, HyperShift, Cluster API, EKS, and a cluster without an autoscaler (a minute)
	@$(call waiting,$(BIN)/python -m sandbox.demo all)

FILE ?= events/provisioning-failure.json

event: setup ## send a test event to a stack of the sandbox and print its effect: make event FILE=events/NAME.json
	@$(call waiting,$(BIN)/python -m sandbox.local_stack event "$(FILE)")

# Keep the order of the files. By default, xdist sorts them by their number of tests, so files with one long test run last and
# one worker is idle. A crashed worker ends the run, because xdist would wait for it forever.
SIDE_BY_SIDE = -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0

test: check ## `make check`, and every promise once (nine minutes on two cores)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not deep"

test-deep: setup .venv-sam/.ready chromium ## all other tests, and more examples: random worlds, chaos, simulations, Chromium, builds, real API server
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "deep or hypothesis" --hypothesis-profile=deep

quick: setup ## the unit and property tests of `make test` (four minutes)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not deep" tests/property tests/unit

check: setup .venv-sam/.ready ## linters, types, import rules, public API, template (25 seconds)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict layers/evenkeel cli
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/unit/project/test_public_api.py
	.venv-sam/bin/sam validate --lint --template template.yaml --region $(AWS_DEFAULT_REGION)
	.venv-sam/bin/cfn-lint deploy/auto-scaling/account.yaml

# The Python version of Lambda, on PATH or from pyenv. A version manager's shim may be on PATH and not run, so each one is tried.
PYTHON313 = $(shell for p in python3.13 "$${HOME:-/}"/.pyenv/versions/3.13*/bin/python3.13; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' >/dev/null 2>&1 && "$$p" -c 'import sys; print(sys.executable)' && break; done)

build: .venv-sam/.ready ## build the stack for `sam deploy` in .aws-sam/build: arm64, compiled for Python 3.13
	@test -n "$(PYTHON313)" || { echo "make build needs Python 3.13, as Lambda does: the layers contain compiled files. Install python3.13 on PATH or in ~/.pyenv/versions."; exit 1; }
	PATH="$$(dirname "$(PYTHON313)"):$$PATH" EVENKEEL_PYTHON="$(PYTHON313)" EVENKEEL_BUILD_ARCH=aarch64 \
	  .venv-sam/bin/sam build --template template.yaml --region $(AWS_DEFAULT_REGION)
	@echo "to deploy it: .venv-sam/bin/sam deploy --parameter-overrides AlarmTopicArn=nobody"

# The URL from which krew downloads a release. Without one, name the plugin's archive yourself (docs/operate/upgrade.md).
RELEASE_URL ?= https://releases.example.com/evenkeel
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' layers/evenkeel/evenkeel/__init__.py)

# A key of ssh-keygen that signs the checksums, for example ~/.ssh/id_ed25519, or its .pub file if the key is in an agent.
SIGNING_KEY ?=

package: build ## write a release to dist/: zips, template, wheels, SBOM, checksums; each build has the same bytes. SIGNING_KEY=FILE signs it
	@$(BIN)/python -m deploy.package .aws-sam/build dist/evenkeel-$(VERSION) $(RELEASE_URL) $(SIGNING_KEY)
	@echo "dist/evenkeel-$(VERSION): $$(wc -l <dist/evenkeel-$(VERSION)/SHA256SUMS) files, $(if $(SIGNING_KEY),signed by $(SIGNING_KEY),not signed: set SIGNING_KEY=FILE)"

# The layers for tests and benchmarks: built by the same recipes, for this machine's processor, with Python 3.13 if available.
# `runtime` holds the packages of Lambda's image.
HOST_PYTHON = $(or $(PYTHON313),$(CURDIR)/$(BIN)/python)

build-host: build/host/dependencies.ready build/host/evenkeel.ready ## build the layers for this machine in build/host

build/host/dependencies.ready: layers/dependencies/Makefile layers/dependencies/requirements.txt requirements/runtime.txt | .venv/.ready
	@rm -rf build/host/DependenciesLayer build/host/runtime
	@mkdir -p build/host
	@$(MAKE) -C layers/dependencies build-DependenciesLayer ARTIFACTS_DIR="$(CURDIR)/build/host/DependenciesLayer" \
	  EVENKEEL_BUILD_ARCH=host EVENKEEL_PYTHON="$(HOST_PYTHON)"
	@"$(HOST_PYTHON)" -m pip install -qq --require-hashes --no-deps --target build/host/runtime -r requirements/runtime.txt
	@echo "$(HOST_PYTHON)" >build/host/python
	@touch $@

build/host/evenkeel.ready: layers/evenkeel/Makefile build/host/dependencies.ready $(shell find layers/evenkeel/evenkeel -name '*.py' -o -path '*/templates/*' -o -name '*.json')
	@rm -rf build/host/EvenkeelLayer
	@$(MAKE) -C layers/evenkeel build-EvenkeelLayer ARTIFACTS_DIR="$(CURDIR)/build/host/EvenkeelLayer" EVENKEEL_PYTHON="$$(cat build/host/python)"
	@touch $@

chromium: | setup ## fetch Chromium and axe-core for the tests of the status page (a minute, 80 MB, once)
	@scripts/fetch-chromium.sh build/chromium
	@scripts/fetch-axe.sh build/axe

bench: setup build-host ## measure every figure of docs/: checks, load, outages, cold start, planning, 10,000 simulated pools, the bill
	@$(BIN)/python -m bench

# A quiet machine measures alike: let nothing else run.
figures: setup build-host ## renew bench/figures.json and docs/design/figures.md; copy the tables of `python -m bench bill` to docs/operate/cost.md
	@rm -f build/figures.json
	@$(BIN)/python -m bench quiet_check auto_scaling_check auto_scaling_accounts workload_view
	@$(BIN)/python -m bench auto_scaling_accounts --groups 3
	@$(BIN)/python -m bench load --clusters 10000 --outage 500 --hanging 100
	@$(BIN)/python -m bench forecast plan_growth demand
	@cp build/figures.json bench/figures.json
	@$(BIN)/python docs/generate.py

# LocalStack needs Python 3.13, and lacks EKS and backups of tables.
test-localstack: setup .venv-localstack/.ready build/dynamodb-local/.ready ## run the integration tests that call AWS against LocalStack (needs Python 3.13, Java, npm)
	EVENKEEL_LOCALSTACK=1 $(BIN)/pytest $(SIDE_BY_SIDE) -m aws tests/integration --ignore=tests/integration/test_eks_access.py \
	  --ignore=tests/integration/test_docs_scripts.py

localstack: setup .venv-localstack/.ready build/dynamodb-local/.ready ## run a stack on LocalStack until Ctrl-C, for test events by hand (docs/guides/test-events.md)
	@$(BIN)/python -m sandbox.local_stack serve

.PHONY: can-localstack
can-localstack:
	@test -n "$(PYTHON313)" && java -version >/dev/null 2>&1 && command -v npm >/dev/null

.venv-localstack/.ready: requirements/localstack.txt
	@test -n "$(PYTHON313)" || { echo "make test-localstack needs Python 3.13, as LocalStack's core does"; exit 1; }
	@$(PYTHON313) -m venv .venv-localstack
	@echo "setting up .venv-localstack (about a minute, once)"
	@.venv-localstack/bin/pip install --no-compile -qq --require-hashes --no-deps -r requirements/localstack.txt
	@touch $@

build/dynamodb-local/.ready:
	@scripts/fetch-dynamodb-local.sh $(@D)
	@touch $@

# Every lock file is complete and has hashes, which each install requires. Installs use --no-deps: in hash mode, older versions of
# pip treat a package with an extra as another package, which is not pinned.
LOCK = uv pip compile -q --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --no-header

# Dependencies of the asynchronous client in `kubernetes`, which Evenkeel does not import, and of parts that the layer leaves out
# (layers/dependencies/README.md).
FOR_TWIN = aiohttp aiohttp-retry aiohappyeyeballs aiosignal attrs frozenlist multidict propcache yarl
NOT_SHIPPED = $(FOR_TWIN) \
  certifi charset-normalizer durationpy idna oauthlib python-dateutil requests requests-oauthlib six websocket-client

audit: ## look for known holes in every locked package (needs pipx and the network)
	@for lock in requirements/*.txt layers/dependencies/requirements.txt; do \
	  pipx run --spec pip-audit==2.10.1 pip-audit --progress-spinner off --disable-pip --require-hashes -r "$$lock"; \
	done

lock: ## update the pinned versions (needs uv)
	$(LOCK) --universal --python-version 3.11 pyproject.toml cli/pyproject.toml --extra plot --group dev \
	  --no-emit-package evenkeel-core -o requirements/dev.txt
	$(LOCK) --universal --python-version 3.11 -c requirements/dev.txt pyproject.toml cli/pyproject.toml \
	  $(foreach package,evenkeel-core $(FOR_TWIN),--no-emit-package $(package)) -o requirements/cli.txt
	$(LOCK) --universal --python-version 3.11 -c requirements/dev.txt requirements/runtime.in -o requirements/runtime.txt
	$(LOCK) --universal --python-version 3.11 requirements/sam.in -o requirements/sam.txt
	$(LOCK) --python-platform linux --python-version 3.13 requirements/localstack.in -o requirements/localstack.txt
	$(LOCK) --python-platform aarch64-manylinux_2_28 --python-version 3.13 -c requirements/dev.txt \
	  $(foreach package,$(NOT_SHIPPED),--no-emit-package $(package)) \
	  layers/dependencies/requirements.in -o layers/dependencies/requirements.txt

clean: ## delete every build and environment
	rm -rf .venv .venv-sam .venv-localstack .aws-sam build dist
