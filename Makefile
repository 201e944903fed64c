# SPDX-License-Identifier: Apache-2.0
# The commands of the project. `make help` lists them; `make demo` and `make test` need nothing
# but a Debian or Ubuntu machine with root and its package registries.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
# Some tools start others by name (cython-lint: pycodestyle).
export PATH := $(CURDIR)/.venv/bin:$(PATH)
PY := $(VENV)/bin/python
RESULTS := build/results
STAMP := $(VENV)/.ready
AUDIT = --strict
SOURCES := setup.py $(wildcard usbdra/_native/*.pyx usbdra/_native/*.pxd)
EXT := build/.extension
PYTEST = $(PY) -m pytest -o junit_family=xunit2
# Tests that cut connections to real servers leave some to the garbage collector on a busy machine:
# shown, no failure. Unit tests are where a leak fails.
BED = $(PYTEST) -W default::pytest.PytestUnraisableExceptionWarning

.PHONY: help
help: ## list the commands
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: deps
deps: ## install the Debian packages that building and testing need (root)
	@$(PYTHON) tests/host_packages.py build

$(STAMP): tests/requirements.txt
	@echo "== Python environment in $(VENV)"
	@$(MAKE) --no-print-directory deps
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --require-hashes --requirement tests/requirements.txt
	@touch $@

$(EXT): $(STAMP) $(SOURCES)
	@echo "== extension (release), in place"
	@$(PY) setup.py --quiet build_ext --inplace
	@mkdir -p build && touch $@

.PHONY: build
build: $(EXT) ## build the extension in place; a failed build fails loudly

.PHONY: wheel
wheel: $(STAMP) ## build dist/usbdra-*.whl
	@rm -rf dist && $(PY) -m build --wheel --no-isolation --outdir dist . > /dev/null
	@ls dist/*.whl

.PHONY: unit
unit: build ## unit, contract and repository tests: no root, under a minute
	@mkdir -p $(RESULTS)
	@$(PYTEST) --junitxml=$(RESULTS)/unit.xml

.PHONY: lint
lint: build ## ruff, mypy (strict), cython-lint, import-linter, stubs against the extension
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@$(VENV)/bin/cython-lint usbdra/_native
	@$(VENV)/bin/lint-imports --no-cache
	@$(PY) -m mypy.stubtest usbdra._native

.PHONY: lock audit sbom
lock: $(STAMP) ## newest allowed versions into the three lock files (deploy/image, tests)
	@$(PY) -m pip install --quiet --group lock
	@$(PY) deploy/image/lock.py

audit: $(STAMP) ## what is known against what is locked and built; AUDIT= lets missing answers pass
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed
	@$(PY) -m tests.audit $(AUDIT) --output $(RESULTS)/audit.txt

sbom: $(STAMP) ## build the image and copy its list of contents to build/usbdra.cdx.json
	@$(PYTHON) tests/host_packages.py bed
	@mkdir -p build
	@$(PY) -m tests.cluster sbom build/usbdra.cdx.json

.PHONY: debug asan
debug: $(STAMP) ## unit tests on the debug build of the extension (counters, line tracing)
	@tests/variant.sh debug $(RESULTS)/debug.xml

asan: $(STAMP) ## unit tests on the sanitizer build (address, undefined behaviour)
	@tests/variant.sh asan $(RESULTS)/asan.xml

.PHONY: fuzz
fuzz: build ## a short bounded run of every coverage-guided fuzzer (FUZZ_SEED=0: another each time)
	@for f in tests/fuzz/fuzz_*.py; do echo "== $$f"; PYTHONHASHSEED=0 $(PY) $$f -seed=$${FUZZ_SEED:-1} -max_total_time=$${FUZZ_SECONDS:-10} -rss_limit_mb=1024 > build/$$(basename $$f).log 2>&1 || { tail -40 build/$$(basename $$f).log; exit 1; }; done

.PHONY: search
search: build ## property and model tests with other examples each time, 10 times as many (SEARCH=10)
	@SEARCH=$${SEARCH:-10} $(PYTEST) --timeout=3600 \
	  $$(grep -rlE "^(from|import) hypothesis" tests/unit)

.PHONY: bench
bench: build ## benchmarks of the parts, and of the agent against a control plane (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed && $(PYTHON) tests/host_packages.py bench
	@$(PY) -m bench.run --output $(RESULTS)/bench.json bench/micro bench/cluster

.PHONY: bench-kernel
bench-kernel: $(STAMP) ## attach and throughput on real kernels against the stock tools (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed
	@$(PY) -m bench.run --output $(RESULTS)/bench-kernel.json bench/kernel

.PHONY: throughput
throughput: $(STAMP) ## what limits a link: delays, losses, TCP's settings, keys, sound; a quarter of an hour (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed
	@$(PY) -m bench.run --output $(RESULTS)/throughput.json bench/throughput

.PHONY: bench-cluster
bench-cluster: $(STAMP) ## long runs: plugs, idle, and Prepare on a cluster's nodes under QEMU (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed && $(PYTHON) tests/host_packages.py bench
	@BENCH_PLUGS=200 BENCH_STARTS=10 BENCH_IDLE_SECONDS=60 BENCH_PAIRS=50 BENCH_ROUNDS=50 \
	  $(PY) -m bench.run --output $(RESULTS)/bench-cluster.json bench/cluster bench/prepare

.PHONY: scale
scale: $(STAMP) ## what a cluster of many nodes costs, simulated (SCALE_NODES=100,1000,5000; root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed
	@$(PY) -m bench.run --output $(RESULTS)/scale.json bench/scale

.PHONY: flame
flame: build ## where both nodes' CPUs are during Prepare, sampled, into docs/performance (root)
	@$(PYTHON) tests/host_packages.py bed
	@$(PY) -m pip install --quiet --group flame
	@FLAME_OUTPUT=docs/performance/flame.json $(BED) bench/flame
	@$(MAKE) --no-print-directory performance-page

.PHONY: performance-page
performance-page: $(STAMP) ## docs/performance.md and its plots from the runs in docs/performance
	@$(PY) -m bench.page

.PHONY: package
package: wheel ## install the wheel, and the source, into empty environments
	@mkdir -p $(RESULTS)
	@$(PYTEST) tests/package --junitxml=$(RESULTS)/package.xml

.PHONY: kernel
kernel: build ## two machines under QEMU with stock kernels 6.1 and 6.12 (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed
	@$(BED) tests/kernel --timeout=900 --junitxml=$(RESULTS)/kernel.xml

.PHONY: install-yaml
install-yaml: $(STAMP) ## render deploy/install.yaml and uninstall.yaml from the chart
	@$(PY) -m tests.cluster.flat

.PHONY: parts
parts: $(STAMP) ## build what beds are made of: Kubernetes, containerd, the image (kept outside the checkout)
	@$(PYTHON) tests/host_packages.py bed
	@$(PY) -m tests.cluster build

.PHONY: api
api: $(STAMP) ## chart, objects and rights against a control plane alone, no QEMU (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed && $(PYTHON) tests/host_packages.py web
	@$(BED) tests/api --junitxml=$(RESULTS)/api.xml

.PHONY: web screenshot
web: $(STAMP) ## the web page with real tokens and in headless Chromium; part of `make api` (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed && $(PYTHON) tests/host_packages.py web
	@$(BED) tests/api/test_web.py --junitxml=$(RESULTS)/web.xml

screenshot: ## the same, and docs/web.png as the page looks now
	@USBDRA_WRITE_DOCS=1 $(MAKE) --no-print-directory web

.PHONY: cluster
cluster: $(STAMP) ## a Kubernetes control plane on this machine, two nodes under QEMU (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed
	@$(BED) tests/cluster --junitxml=$(RESULTS)/cluster.xml

# What `make test` has time for; the rest takes half an hour more.
CLUSTER_CORE := $(addprefix tests/cluster/test_,claims.py examples.py exporter.py trust.py fault_matrix.py)

.PHONY: cluster-core
cluster-core: $(STAMP) ## the part of `make cluster` that `make test` runs: claims, examples, exporter, trust, faults (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed
	@$(BED) $(CLUSTER_CORE) --junitxml=$(RESULTS)/cluster.xml

.PHONY: faults faults-page soak
faults: $(STAMP) ## every fault in every phase on the cluster bed, some two hours; CELLS='busy importer', NIGHTLY=1: long cuts too (root)
	@$(PYTHON) tests/host_packages.py bed
	@$(PY) -m tests.cluster.matrix run $(CELLS)
	@$(if $(NIGHTLY),$(PY) -m tests.cluster.matrix run --nightly --together "10 min",true)

faults-page: $(STAMP) ## put what `make faults` measured here into docs/reliability.md
	@$(PY) -m tests.cluster.matrix page

soak: build ## SOAK_CYCLES=1000 attach and detach cycles of one pair of kernels, an hour or two (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed
	@SOAK_CYCLES=$${SOAK_CYCLES:-1000} $(BED) tests/kernel/test_soak.py --junitxml=$(RESULTS)/soak.xml

.PHONY: machines
machines: $(STAMP) ## virtual machines in pods of the cluster bed; not part of `make test` (root)
	@mkdir -p $(RESULTS)
	@$(PYTHON) tests/host_packages.py bed && $(PYTHON) tests/host_packages.py machines
	@USBDRA_MACHINES=1 $(BED) tests/cluster/test_machines.py --junitxml=$(RESULTS)/machines.xml

.PHONY: demo demo-kernel demo-cluster
demo: demo-cluster ## the story of the README

demo-kernel: $(STAMP) ## two machines, one USB stick: plugged into a, used on b
	@$(PYTHON) tests/host_packages.py bed
	@$(PY) -m tests.bed.demo

demo-cluster: $(STAMP) ## a Kubernetes cluster of two nodes: a pod on b uses the stick in a
	@$(PYTHON) tests/host_packages.py bed
	@$(PY) -m tests.cluster.demo

.PHONY: test
test: ## everything: lint, unit, sanitizers, fuzz, benchmarks, package, control plane, both beds
	@rm -rf $(RESULTS)
	@$(MAKE) --no-print-directory lint unit
	@$(MAKE) --no-print-directory -j2 --output-sync=target debug asan fuzz
	@$(MAKE) --no-print-directory package parts
	@$(MAKE) --no-print-directory audit AUDIT=
	@$(MAKE) --no-print-directory bench api kernel cluster-core
	@$(PY) tests/summary.py $(RESULTS)

.PHONY: clean
clean: ## remove what was built here (caches outside the checkout stay)
	rm -rf build dist *.egg-info usbdra/_native/*.so usbdra/_native/*.c .mypy_cache .ruff_cache
