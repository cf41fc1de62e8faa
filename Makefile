# Lorentz. `make help` lists the targets; the work is done in scripts/.

.PHONY: help build web install uninstall wheel dist dist-try dist-reproduce demo museum test kernels bench scenarios study soak fuzz miri nightly lint docs clean
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

build: ## build the commands, the C libraries and the Python package, in target/release
	@scripts/setup
	@scripts/build

web: ## as build, and lorentz-web with its page, and lorentz-agent for several hosts
	@scripts/setup web
	@scripts/build --page

install: build ## install them in PREFIX (/usr/local); DESTDIR before it
	@scripts/install

uninstall: ## remove from PREFIX the files that `make install` puts there
	@scripts/install --uninstall

wheel: build ## build the Python package as a wheel, in target/wheels
	@scripts/setup wheel
	@scripts/wheel

dist: ## make the packages, in build/dist
	@scripts/setup dist
	@scripts/build --page --dist
	@scripts/dist

dist-try: ## install and use the packages of `make dist` in fresh roots of Debian 12, 13 and Ubuntu 24.04; needs root
	@scripts/dist-try $(ARGS)

dist-reproduce: ## build programs and packages in two directories, and compare them byte by byte
	@scripts/setup dist
	@scripts/dist-reproduce $(ARGS)

demo: ## run real programs in virtual time and print what happened
	@scripts/setup
	@scripts/build --demo
	@scripts/demo

museum: ## run the museum of clock bugs: real programs whose bugs show in virtual time (ARGS="--faketime NAME")
	@scripts/setup museum
	@scripts/build
	@scripts/museum $(ARGS)

test: ## run every test; the counts stand at the end
	@scripts/setup test
	@scripts/build --page
	@scripts/test

bench: ## measure the costs; writes docs/performance.md, docs/experiments.md, docs/latency.md, docs/networks.md, docs/clock-errors.md (ARGS=--quick only prints, ARGS=discipline only chrony's)
	@scripts/setup bench
	@scripts/build
	@[ "$(ARGS)" = discipline ] || benches/run.py $(ARGS)
	@[ -n "$(ARGS)" ] || benches/latency.py
	@[ -n "$(ARGS)" ] || benches/networks.py
	@[ -n "$(ARGS)" ] || benches/ospf.py
	@[ -n "$(ARGS)" ] || benches/ns3.py
	@[ -n "$(ARGS:discipline=)" ] || { benches/discipline.py && benches/discipline_day.py && benches/raft.py; }

DIR ?= tests/networks/scenarios
scenarios: ## have other emulators' scenarios in DIR come up; writes docs/scenarios.md (ARGS=flags of each `lorentz up`)
	@scripts/setup bench
	@scripts/build
	@benches/examples.py $(DIR) --page docs/scenarios.md -- $(ARGS)

study: ## measure what virtual time costs, beside others; writes docs/study.md (ARGS=--published the cost paper's own, ARGS=--quick only a report)
	@scripts/setup test
	@scripts/build
	@benches/study.py $(ARGS)

kernels: ## run a hundred of the tests on kernels of Debian 12 and 13, emulated (ARGS=6.1 one of them); needs root
	@scripts/setup kernels
	@scripts/build --page
	@scripts/kernels $(ARGS)

soak: ## run the tests that take hours
	@scripts/setup test
	@scripts/build
	@scripts/soak

fuzz: ## run every fuzz target, LORENTZ_FUZZ_SECONDS each (60)
	@scripts/setup
	@scripts/fuzz

miri: ## run tests of crates/clock under Miri; needs a nightly Rust
	@scripts/setup miri
	@scripts/miri

nightly: ## run the long checks: fuzz (600 s each), miri, test, soak; the log is in build/nightly
	@scripts/setup test
	@scripts/setup miri
	@scripts/build --page
	@scripts/nightly

lint: ## check formatting and look for mistakes
	@scripts/setup lint
	@scripts/lint

docs: ## build the API documentation and the book of the pages, check their links, run their examples
	@scripts/setup docs
	@scripts/setup web
	@scripts/build --page
	@scripts/docs

clean: ## remove what was built
	rm -rf target build
