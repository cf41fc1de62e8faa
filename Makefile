# Lorentz. `make help` lists the targets; the work is done in scripts/.

.PHONY: help build demo test bench soak lint docs clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

build: ## build the lorentz command: target/release/lorentz
	@scripts/setup
	@scripts/build

demo: build ## run real programs in virtual time and print what happened
	@scripts/demo

test: ## run every test; the counts stand at the end
	@scripts/setup test
	@scripts/build
	@scripts/test

bench: ## measure the costs; writes docs/performance.md (make bench ARGS=--quick only prints)
	@scripts/setup bench
	@scripts/build
	@benches/run.py $(ARGS)

soak: ## run the tests that take hours
	@scripts/setup test
	@scripts/build
	@scripts/soak

lint: ## check formatting and look for mistakes
	@scripts/setup lint
	@scripts/lint

docs: ## build the API documentation and check the links of the pages
	@scripts/setup
	@scripts/docs

clean: ## remove what was built
	rm -rf target build
