# The commands of the project. `make` alone prints them.
# Tests are built with `--workspace`, whatever is chosen of them: then all commands share what they compile. The binary that
# they start is built so too (`build-tests`); `make build` builds the one that people run, which has nothing that tests need.
# `check` reads and never writes; `fix` writes. Continuous integration runs the same commands (.ci/run).

CARGO ?= cargo
ARGS ?=
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release
BINARY = $(RELEASE)/baton

.DEFAULT_GOAL := help
.PHONY: help serve build build-tests test test-unit test-e2e test-etcd test-kills test-sim test-doc test-rdma test-neon cuda-emulator test-cuda test-cuda-gate test-gpu fix-cuda-gate fix-cuda-launches test-conformance test-kubernetes test-console test-fuzz bench-kernels bench-threads bench-placement soak soak-fuzz soak-miri soak-sim check check-format check-tidy check-lints check-deps fix ready

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

serve: build ## install what is missing, build, fetch a small chat model once and serve it on http://127.0.0.1:8000 (MODEL=tiny-rust: the bundled one; ARGS="--decode 2")
	@# Where fetched models lie is no setting of the binary.
	model="$$(scripts/fetch-model $(MODEL))" && exec env -u BATON_MODELS $(BINARY) serve --model "$$model" $(ARGS)

build: ## install what a build needs, and build the binary in release mode
	@scripts/install-tools build
	$(CARGO) build --release --package baton

build-tests: ## build all tests, and the binary that they start, with what tests need
	@scripts/install-tools build
	$(CARGO) test --locked --release --workspace --no-run

test: test-unit test-fuzz test-e2e test-etcd test-kills test-sim test-doc test-rdma test-cuda test-cuda-gate test-gpu test-conformance test-kubernetes test-console ## install what tests need, and run everything that needs no GPU

test-unit: ## unit, property, reference and whole-path tests
	@scripts/install-tools build nextest python model
	$(CARGO) nextest run --locked --release --workspace -E 'not binary(e2e) and not binary(etcd) and not package(fuzz) and not package(tests-cuda)'

test-e2e: ## the real binary from outside
	@scripts/install-tools build nextest python model
	$(CARGO) nextest run --locked --release --workspace -E 'binary(e2e) and not test(/^(discovery|cuda)::/)'

test-etcd: ## workers in a real etcd, and the real binary over its loss
	@scripts/install-tools build nextest etcd
	$(CARGO) nextest run --locked --release --workspace -E 'binary(etcd) or (binary(e2e) and test(/^discovery::/))'

test-kills: ## real processes, killed, stopped and cut off from each other; two hosts take root
	@scripts/install-tools build nextest hosts python model
	$(CARGO) nextest run --locked --release --workspace --features baton/failpoints --test e2e --test-threads 3 -E 'test(/^kills::/)'
	@# No binary with points of failure stays.
	$(CARGO) test --locked --quiet --release --workspace --test e2e --no-run

test-sim: build-tests ## whole clusters in virtual time, and bugs planted in the cores (SEEDS=10000)
	@scripts/install-tools build nextest
	$(RELEASE)/sim --seeds $(or $(SEEDS),10000) --coverage
	$(CARGO) nextest run --locked --release --workspace --features sim/planted --test planted --success-output immediate

test-rdma: ## the lane over RDMA, by real verbs in a virtual machine with a Soft-RoCE device; takes root
	@scripts/install-tools build rdma
	tests/rdma/run

# Where the emulator of CUDA is built.
SIMT = $(or $(CARGO_TARGET_DIR),target)/simt
# Where NVIDIA's compiler of kernels is installed.
NVIDIA = $(abspath $(or $(CARGO_TARGET_DIR),target))/cuda/venv/lib/python3*/site-packages/nvidia/cu13
CUDA_GATE = cd tests/cuda && libraries="$$(echo $(NVIDIA)/lib)" && LD_LIBRARY_PATH="$$libraries" PATH="$$PATH:$${libraries%lib}bin"

TEST_CUDA = LD_LIBRARY_PATH=$(abspath $(SIMT))/lib $(CARGO) nextest run --locked --release --workspace

# Bugs planted in the device. With the features of `test-sim`, so that what it built serves.
CUDA_FAULTS = --features sim/planted,tests-cuda/planted --test device

cuda-emulator: ## build the emulator of CUDA into target/simt/lib: LD_LIBRARY_PATH=target/simt/lib baton serve --device cuda
	@scripts/install-tools build
	$(MAKE) --no-print-directory -C tests/cuda/simt OUT=$(abspath $(SIMT))/lib

test-cuda: cuda-emulator ## the emulator of CUDA itself; the kernels and the device for NVIDIA cards in it, in three ways; bugs planted in the device; whole processes on it
	@scripts/install-tools build nextest
	BUILD=$(abspath $(SIMT))/check tests/cuda/simt/check
	$(MAKE) --no-print-directory -C tests/cuda/simt check OUT=$(abspath $(SIMT))/lib
	$(TEST_CUDA) -E 'package(tests-cuda) and not binary(gate)'
	SIMT_COPIES=early SIMT_ORDER=random SIMT_SEED=$(or $(SEED),7) $(TEST_CUDA) -E 'package(tests-cuda) and not binary(gate) and not test(/^launches::/)'
	@# Sampling and whole models take too long with every access checked.
	SIMT_CHECK=1 $(TEST_CUDA) -E 'package(tests-cuda) and not binary(gate) and not binary(sampling) and not binary(device)'
	$(TEST_CUDA) -E 'binary(e2e) and test(/^cuda::/)'
	$(TEST_CUDA) $(CUDA_FAULTS) -E 'test(/^faults::/)'
	SIMT_CHECK=1 SIMT_ORDER=random SIMT_SEED=$(or $(SEED),7) $(TEST_CUDA) $(CUDA_FAULTS) -E 'test(/^faults::/) or test(=steps_in_flight_sample_what_single_steps_do)'

test-gpu: cuda-emulator ## try what a host with a card runs (tests/gpu/run), on the emulator and with small sizes
	@scripts/install-tools build
	$(CARGO) xtask gpu --unpacked
	LD_LIBRARY_PATH=$(abspath $(SIMT))/lib tests/gpu/run --tiny --pack $(or $(CARGO_TARGET_DIR),target)/gpu

fix-cuda-launches: cuda-emulator ## write the table of what steps launch
	@scripts/install-tools build nextest
	WRITE_TABLE=1 $(TEST_CUDA) -E 'package(tests-cuda) and test(launches::)'

test-cuda-gate: ## the kernels for NVIDIA cards, by NVIDIA's compiler: what they take of each card is a committed table
	@scripts/install-tools build nextest cuda
	$(CUDA_GATE) $(CARGO) nextest run --locked --release --workspace -E 'package(tests-cuda) and binary(gate)'

fix-cuda-gate: ## write that table
	@scripts/install-tools build nextest cuda
	$(CUDA_GATE) WRITE_TABLE=1 $(CARGO) nextest run --locked --release --workspace -E 'package(tests-cuda) and binary(gate)'

test-neon: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER = aarch64-linux-gnu-gcc
test-neon: export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER = qemu-aarch64 -L /usr/aarch64-linux-gnu
test-neon: ## the kernels for ARM, in an emulator of the processor
	@scripts/install-tools build nextest neon
	$(CARGO) nextest run --locked --release --package engine --lib --target aarch64-unknown-linux-gnu -E 'test(/^cpu::(kernels|simd)::/)'

bench-kernels: ## single kernels of the CPU engine, one thread (ARGS=linear/Q8_0: what has this in its name)
	@scripts/install-tools build
	$(CARGO) bench --locked --package bench-lab --bench kernels -- $(ARGS)

bench-threads: ## the CPU engine's threads beside rayon: sections that are nothing, and whole steps
	@scripts/install-tools build
	$(CARGO) bench --locked --package bench-lab --bench thread_pool -- $(ARGS)

bench-placement: ## decisions among 1,000 workers: allocations and times, and instructions where valgrind is there
	@scripts/install-tools build
	$(CARGO) bench --locked --package bench-lab --bench placement
	$(CARGO) bench --locked --package bench-lab --bench placement --no-run --message-format=json | \
		sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1 | xargs scripts/count-instructions

test-doc: ## the examples in the documentation
	@scripts/install-tools build
	$(CARGO) test --locked --release --workspace --doc --quiet

test-conformance: build-tests ## real clients, and each of the examples, against the binary
	@scripts/install-tools python model
	tests/conformance/run.sh $(BINARY)

test-kubernetes: build-tests ## the Helm chart, its rendered presets and the container's root file system, against tools and the binary; the last takes root
	tests/kubernetes/run $(BINARY)

test-console: build-tests ## the console in a real Chromium, over a cluster of processes
	tests/console/run $(BINARY)

test-fuzz: ## every reader of bytes from outside, over its corpus and changes of it
	@scripts/install-tools build nextest
	$(CARGO) nextest run --locked --release --workspace -E 'package(fuzz)'

soak: soak-miri ## the property tests again, each with many more cases (CASES=20000), and what soak-miri does
	@scripts/install-tools build nextest python
	PROPTEST_CASES=$(or $(CASES),20000) $(CARGO) nextest run --locked --release --workspace --profile soak

soak-miri: ## the kernels in plain Rust, and the words that threads and processes share, under Miri, which sees every access to memory
	@scripts/install-tools build miri
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked --package engine --lib -- cpu::kernels cpu::simd quant::
	MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=16 $(CARGO) +nightly miri test --locked --package transport --lib -- claims:: failure:: progress_page:: plan_slot:: wake::words wake::watch::words
	MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --locked --package tiers --lib -- host::words

soak-fuzz: ## libFuzzer on every reader of bytes from outside, with a nightly compiler (SECONDS=60 each)
	@scripts/install-tools build fuzz
	fuzz/run $(or $(SECONDS),60)

soak-sim: ## many more seeds of the simulator (SEEDS=200000, FROM=10000)
	@scripts/install-tools build
	$(CARGO) xtask sim --seeds $(or $(SEEDS),200000) --from $(or $(FROM),10000)

check: check-format check-tidy check-lints check-deps ## format, tidy, lints, dependencies; never writes

check-format:
	$(CARGO) fmt --all --check

check-tidy:
	@scripts/install-tools build
	$(CARGO) xtask tidy

check-lints:
	@scripts/install-tools build
	$(CARGO) clippy --locked --release --workspace --all-targets -- -D warnings
	@# As people build it: without the features that tests turn on.
	$(CARGO) clippy --locked --release --package baton -- -D warnings
	$(CARGO) clippy --locked --release --workspace --features baton/failpoints --test e2e -- -D warnings

check-deps:
	@scripts/install-tools build deny
	$(CARGO) deny --log-level error check bans licenses sources

fix: ## format, generate, and apply what clippy can fix
	$(CARGO) fmt --all
	$(CARGO) xtask proto
	$(CARGO) xtask pages
	$(CARGO) clippy --release --workspace --all-targets --fix --allow-dirty --allow-staged

ready: ## say whether this commit has passed .ci/run, or what came since one that has
	@scripts/ready
