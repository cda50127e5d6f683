# Needs a Rust toolchain; `make setup` gets the rest. What is built is kept outside the clone, see .ci/in-env.
IN_ENV := .ci/in-env

.PHONY: help setup rocksdb build demo test simulate lint docs fuzz bench deny ci

help:
	@echo "make demo     build, then crawl a small web made for the purpose"
	@echo "make build    build the program orbweaver"
	@echo "make test     run all tests"
	@echo "make simulate run clusters on simulated edges: old plans, fresh seeds, planted defects"
	@echo "make lint     check format and clippy"
	@echo "make docs     build the documentation of the code, and check its links"
	@echo "make fuzz     run each fuzz target on fixed inputs, or explore for FUZZ_SECONDS"
	@echo "make bench    run the benchmarks"
	@echo "make deny     check licences and sources of all dependencies"
	@echo "make setup    install what is missing (the others do it too)"
	@echo "make ci       all checks, as before a change goes in"

setup:
	@.ci/setup

rocksdb: setup
	@.ci/rocksdb

build: rocksdb
	$(IN_ENV) cargo build --release --package node --package simulation
	@$(IN_ENV) sh -c 'echo "built $$CARGO_TARGET_DIR/release/orbweaver"'

demo: build
	$(IN_ENV) sh -c '"$$CARGO_TARGET_DIR/release/simulation" demo'

test: rocksdb
	$(IN_ENV) .ci/test

simulate: rocksdb
	$(IN_ENV) .ci/simulate

lint: setup
	$(IN_ENV) cargo fmt --all --check
	$(IN_ENV) cargo fmt --manifest-path tests/fuzz/Cargo.toml --check
	$(IN_ENV) cargo fmt --manifest-path tests/virtual_swarm/Cargo.toml --check
	$(IN_ENV) cargo clippy --workspace --all-targets -- -D warnings
	$(IN_ENV) cargo clippy --package node --all-targets --features mongodb -- -D warnings

docs: setup
	RUSTDOCFLAGS="-D warnings" $(IN_ENV) cargo doc --workspace --no-deps

fuzz: setup
	$(IN_ENV) .ci/fuzz

bench: rocksdb
	$(IN_ENV) cargo bench --package benches

deny: setup
	$(IN_ENV) .ci/deny

ci:
	.ci/run
