# CI calls these targets too, all but `run` and those that measure time: see .ci/run.

.PHONY: run test test-deep laws servers matrix faults chaos simulate model descriptors interop loadtest day lint docs bench bench-quick bench-redis bench-once redis-memory instructions instructions-accept way way-accept envoy-calls proxied-requests settled-answers
.PHONY: mutants mutants-lua test-without-servers check-packages packages minimal-versions deny public-api public-api-accept semver check-fuzz fuzz

SERVER_FIGURES = cargo build --release --quiet --package tower-ratelimit-server --bin ratelimitd --example figures \
	&& "$(or $(CARGO_TARGET_DIR),target)/release/examples/figures"

FIGURES := $(abspath $(or $(CARGO_TARGET_DIR),target))/bench

run: ## a rate limited service on 127.0.0.1:3000
	cargo run --example quickstart

test: servers ## all tests, those of the documentation too; ends with a line that counts them
	tests/run

# Those that take minutes each, or programs in other languages. CI runs those whose files have changed: see .ci/paths.
test-deep: laws chaos model descriptors interop loadtest simulate instructions way packages deny ## what searches for longer, and foreign clients

laws: export PROPTEST_CASES ?= 10000
laws: ## the laws of the algorithms by 10,000 cases, optimized, and that explain agrees with the layer
	cargo test --release --package tower-ratelimit-laws --all-features
	cargo test --workspace --exclude 'tower-ratelimit-benches*' --all-features --lib explain_agrees

servers: ## redis-server, memcached and nginx, which tests start; installs missing ones
	tests/servers/install

faults: servers ## Redis in trouble, one fault after the other, in a minute and a half; ends with a table
	tests/faults/table

matrix: servers ## the tests of Redis on each version of a server; installs the versions from PyPI, and ends with a table
	tests/servers/matrix

chaos: servers ## servers and nodes killed at random for two minutes; `make test` does it for 20 seconds
	cargo test --workspace --exclude 'tower-ratelimit-benches*' --all-features --test chaos

simulate: export SIMULATED_SPENDS ?= 100000000
simulate: ## leases in virtual time: ten workloads and seven algorithms, then 10^8 spends under faults; ends with the spends
	for nodes in 100 1000; do \
		SIMULATED_NODES=$$nodes SIMULATED_SECONDS=4 cargo test --release --package tower-ratelimit-redis --lib simulation::table -- --nocapture || exit 1; \
	done
	cargo test --release --package tower-ratelimit-redis --lib simulation::search -- --nocapture

model: ## all interleavings of threads in the store, by loom
	RUSTFLAGS="$(RUSTFLAGS) --cfg tower_ratelimit_loom" cargo test --release --package tower-ratelimit-core --lib --no-default-features loom_

descriptors: export DESCRIPTOR_REQUESTS ?= 100000
descriptors: ## 100,000 questions of Envoy's, beside a model of envoyproxy/ratelimit
	tests/run server::descriptors::model

interop: ## curl, urllib3, grpcio, ky and Chromium against the examples; installs missing ones
	tests/interop/run

loadtest: servers ## the load tester against our algorithms, two crates and nginx, in two minutes; ends with a table
	loadtest/check

day: ## a day of 10^9 decisions, simulated in two minutes: the cost of snapshots, and flat memory
	cargo run --release --quiet --example day

lint: ## format and clippy, warnings denied
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings

docs: ## the documentation, warnings denied
	RUSTDOCFLAGS="$(RUSTDOCFLAGS) -D warnings" cargo doc --package tower-ratelimit --no-deps
	RUSTDOCFLAGS="$(RUSTDOCFLAGS) -D warnings" cargo doc --package tower-ratelimit --no-deps --no-default-features
	RUSTDOCFLAGS="$(RUSTDOCFLAGS) -D warnings" cargo doc --package tower-ratelimit --package tower-ratelimit-core --package tower-ratelimit-adapt --package tower-ratelimit-config --package tower-ratelimit-ops --package tower-ratelimit-redis --package tower-ratelimit-testing --package tower-ratelimit-loadtest --package tower-ratelimit-server --no-deps --all-features
	.ci/links

public-api: ## what each library gives its users, against the files in tests/public-api; fails if it has changed
	.ci/public-api

public-api-accept: ## makes what they give today the reference
	.ci/public-api --accept

semver: ## whether code written for the commit in .ci/baseline compiles with the libraries of today, by cargo-semver-checks, which it installs
	.ci/semver

# Not on Linux, or with another compiler: what CI runs there.
test-without-servers: ## the tests that start no server
	cargo test --package tower-ratelimit --package tower-ratelimit-core --package tower-ratelimit-adapt --package tower-ratelimit-config --package tower-ratelimit-ops --package tower-ratelimit-redis --package tower-ratelimit-testing --lib -- $(shell sed 's/^/--skip /' tests/servers/unit-modules)
	PROPTEST_CASES=100 cargo test --package tower-ratelimit-laws --package tower-ratelimit-tests --test limiter --test laws --no-default-features -- --skip custom_store::

check-packages: ## whether the compiler, such as the oldest one that is supported, builds what is published
	cargo check --package tower-ratelimit --package tower-ratelimit-core --package tower-ratelimit-adapt --package tower-ratelimit-config --package tower-ratelimit-ops --package tower-ratelimit-redis --package tower-ratelimit-testing \
		--package tower-ratelimit-loadtest --package tower-ratelimit-server --all-features

packages: ## all that is published, built from its tarballs alone, with the examples of its documentation; and a program in an empty folder that takes it
	.ci/packages

minimal-versions: servers ## the libraries with the oldest dependencies that their manifests allow, and their unit tests
	.ci/minimal-versions

deny: ## licences, sources and bans of all dependencies; with DENY=advisories, known vulnerabilities, whose database is fetched
	.ci/deny $(DENY)

check-fuzz: ## whether the fuzz targets compile, which are a workspace of their own
	cargo check --manifest-path fuzz/Cargo.toml

fuzz: ## what reads bytes of others, fuzzed for FUZZ_SECONDS (120) each; installs cargo-fuzz, and ends with a table of executions and coverage
	fuzz/run $(TARGETS)

mutants: servers ## MUTANTS (100) changes of each of two parts of the Rust, drawn by SEED (1), each of which a test has to notice; installs cargo-mutants, goes on where it stopped, and ends with a table
	tests/mutants/rust

mutants-lua: servers ## MUTANTS (100) changes of the Lua, drawn by SEED (1), each of which a test has to notice; goes on where it stopped, and ends with a table
	tests/mutants/lua

# The results of a run go into a folder of their own, so the table shows nothing older. Rows that are compared are
# measured in each round, within seconds of each other: see `Rounds` in benches/src/figures.rs.
bench bench-quick bench-redis: export CRITERION_HOME := $(FIGURES)
bench: ROUNDS := 1 2 3 4 5 6 7 8 9
bench-quick: ROUNDS := 1 2 3
bench-quick: SLICES := --measurement-time 1

bench: ## side by side with peers, in eleven minutes; ends with a table
bench-quick: ## the same in four minutes
bench bench-quick: servers
	rm -rf "$(FIGURES)"
	set -e; for round in $(ROUNDS); do \
		CRITERION_HOME="$(FIGURES)/$$round" \
		cargo bench --package tower-ratelimit-benches --bench decision --bench layer --bench limits -- --noplot; \
	done
	cargo bench --package tower-ratelimit-benches --bench memory --bench redis -- $(SLICES)
	cargo run --release --quiet --package tower-ratelimit-benches --bin table

bench-redis: servers ## one decision in Redis beside the cost of a round trip, in two minutes
	rm -rf "$(FIGURES)"
	cargo bench --package tower-ratelimit-benches --bench redis
	cargo run --release --quiet --package tower-ratelimit-benches --bin table -- redis

bench-once: servers ## tests of the tables, the limits of peers beside ours, and every benchmark once, unmeasured
	cargo test --quiet --release --package tower-ratelimit-benches --lib --test migrating
	cargo bench --quiet --package tower-ratelimit-benches --no-run
	cargo bench --quiet --package tower-ratelimit-benches --bench decision --bench layer --bench limits --bench redis -- --test

envoy-calls: servers ## a call of Envoy's rate limit service beside a bare one of tonic, in three minutes; ends with a table
	$(SERVER_FIGURES) envoy-calls

proxied-requests: ## a request through the server beside nginx, what others see beside hostile clients, and the memory after ten million addresses, in ten minutes; ends with three tables
	tests/servers/install wrk=wrk h2load=nghttp2-client
	$(SERVER_FIGURES) proxied-requests

settled-answers: ## what it costs the server to read the usage in answers of a model, in a minute; ends with a table
	$(SERVER_FIGURES) settled-answers

redis-memory: servers ## bytes of Redis for each key, by algorithm
	cargo run --release --quiet --package tower-ratelimit-benches --bin redis-memory

instructions: ## instruction counts of the core paths; fails if one has grown
	benches/count-instructions

instructions-accept: ## makes the current counts the reference
	benches/count-instructions --accept

way: ## calls, functions and files that a request passes, beside a peer; fails if the way has grown
	benches/count-way

way-accept: ## makes a shorter way the bound
	benches/count-way --accept
