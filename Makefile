# Targets for contributors. They build or install everything that they need into the user's cache directory.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

NAME ?= default
MODEL ?= h100-80
COUNT ?= 8
NODES ?= 1
# The Kubernetes version of a new cluster; localcluster knows the valid versions, and chooses one if it is empty.
KUBERNETES ?=
RUN ?=
export NAME MODEL COUNT NODES KUBERNETES

# Objects contain no paths of this folder, so that another clone finds them compiled. The parts of a cluster and the programs of the image
# are built with the same flags, so that packages are compiled once for all. GOFLAGS of the caller or of go's settings are kept.
SHARED := -trimpath -gcflags=all=-dwarf=false
GOFLAGS := $(strip $(filter-out $(SHARED),$(shell go env GOFLAGS 2>/dev/null)) $(SHARED))
export GOFLAGS

.PHONY: help demo demo-profile ci test stress unit k8s138 lifecycle lifecycle-soak fuzz e2e check fmt generate image prove-image cluster-up cluster-down bench bench-scale test-gpu tools clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Boot a cluster, install the chart and show a pod with a GPU
	@demo/demo.sh

demo-profile: ## Show a pod that runs under Nsight Systems, with the profiler of Debian's packages
	@demo/profile.sh

ci test stress e2e: NAME := $(if $(filter file,$(origin NAME)),e2e,$(NAME))
ci: ## What CI runs: check and test, and a report
	@hack/test.sh check unit e2e lifecycle

test: ## Every test: unit, then e2e with lifecycle beside it, and a report; FULL=1 is all of both
	@hack/test.sh unit e2e lifecycle

unit: tools ## The fast loop
	@bin/localcluster build helm >/dev/null
	@hack/unit.sh

k8s138: ## Compile with the libraries of Kubernetes 1.38, and run pkg/plugin/kube and pkg/plugin/publish; needs Go 1.27, no part of CI
	@hack/k8s138.sh

stress: tools ## What changed, beside busy loops: PACKAGES, RUN, N (5), LOOPS (4)
	@hack/stress.sh

lifecycle: ## The invariants of a claim, with processes killed at every fault point
	@hack/lifecycle.sh

lifecycle-soak: ## Random scenarios for DURATION (30m)
	@hack/lifecycle.sh soak

fuzz: ## Every fuzz target for FUZZTIME (10s each)
	@hack/fuzz.sh

e2e: ## On real Kubernetes: core tests and a third; FULL=1 all, RUN=regex on one cluster
	@hack/e2e.sh

check: ## Format, lint, import walls, generated files
	@hack/check.sh

fmt: ## Format every file
	gofmt -w $$(git ls-files '*.go')

generate: ## Renew the generated files
	go generate ./...

tools: ## Build the programs that demo and e2e use into bin/
	@hack/tools.sh

image: tools ## Build the image without Docker: dist/prism.tar
	@hack/image.sh

prove-image: ## Prove the Dockerfile's final stage with Debian's buildah
	@hack/prove-dockerfile.sh

cluster-up: tools ## Boot a cluster with simulated GPUs and the chart: MODEL, COUNT, NODES, KUBERNETES, NAME
	@hack/cluster-up.sh

cluster-down: tools ## Remove the cluster and everything it left
	@bin/localcluster --name "$(NAME)" down

bench: tools ## Latency and cost of a claim, in numbers
	@hack/bench.sh

bench-scale: NODES := $(if $(filter file,$(origin NODES)),500,$(NODES))
bench-scale: tools ## What a layout costs the scheduler, compared with NVIDIA's layouts: NODES (500), LAYOUTS
	@hack/bench-scale.sh

test-gpu: ## Read-only checks on a real GPU, where there is one
	@hack/test-gpu.sh

clean: ## Remove what was built in this folder
	rm -rf bin dist
