# CI calls these targets too, all but `run` and `bench`: see .ci/run.

.PHONY: run test interop lint docs bench

run: ## a rate limited service on 127.0.0.1:3000
	cargo run --example quickstart

test: ## all tests, those of the documentation too
	cargo test --workspace --all-features

interop: ## clients that are not ours, against the examples
	tests/interop/run

lint: ## format and clippy, warnings denied
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --all-features -- -D warnings

docs: ## the documentation, warnings denied
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --no-default-features

bench: ## side by side with peers
	cargo bench --package tower-ratelimit-benches
