# Castellan: every task a person or CI runs. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

ROOT  := $(CURDIR)
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)
export CASTELLAN_LAB_CACHE ?= $(CACHE)/castellan-lab

# Tools are built from tools/go.mod, once for each content of tools/go.sum.
TOOLS_KEY := $(shell sha256sum tools/go.mod tools/go.sum | sha256sum | cut -c1-16)
TOOLS     := $(CACHE)/castellan-tools/$(TOOLS_KEY)
LAB       := $(CACHE)/castellan-tools/castellan-lab

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

## --- a real cluster on this machine (needs root)

$(LAB): FORCE
	@mkdir -p $(dir $(LAB))
	@cd lab && CGO_ENABLED=0 go build -trimpath -o $(LAB) ./cmd/castellan-lab

lab: $(LAB) ## build the lab program and everything it runs (Kubernetes, Ceph root, guest)
	$(LAB) build

up: lab binaries ## a Kubernetes of three nodes with a healthy Ceph on this machine
	$(LAB) up --nodes 3 --disks 2 --disk-size 10Gi --bin bin --deploy deploy
	$(LAB) ceph up --bin bin --deploy deploy

down: $(LAB) ## take everything of the lab down again
	$(LAB) down

e2e: lab binaries kubectl-plugin ## end-to-end tests in labs of their own
	cd lab && CASTELLAN_LAB_REQUIRE=1 go test -count=1 -timeout 60m -v ./e2e/...

csi-standin: ## bin/csi-standin, which stands in for the images of CSI drivers (static)
	cd test/csidriver && CGO_ENABLED=0 go build -tags grpcnotrace -ldflags '-s -w' -o $(ROOT)/bin/csi-standin .

e2e-csi: lab binaries csi-standin ## CSI drivers in a lab of their own, without Ceph (5 minutes)
	cd lab && CASTELLAN_LAB_REQUIRE=1 go test -count=1 -timeout 20m -v ./csi/...

## --- what is built

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)

binaries: ## bin/castellan (links librados) and bin/castellan-node (static)
	CGO_ENABLED=1 go build -tags grpcnotrace -ldflags '$(LDFLAGS)' -o bin/castellan ./cmd/castellan
	CGO_ENABLED=0 go build -ldflags '$(LDFLAGS)' -o bin/castellan-node ./cmd/castellan-node

kubectl-plugin: ## bin/kubectl-castellan, the kubectl plugin (static)
	CGO_ENABLED=0 go build -ldflags '$(LDFLAGS)' -o bin/kubectl-castellan ./cmd/kubectl-castellan

generate: $(TOOLS)/controller-gen $(TOOLS)/crd-ref-docs ## deep copies, CRDs and the API reference from the types
	go run ./hack/generate -controller-gen $(TOOLS)/controller-gen -crd-ref-docs $(TOOLS)/crd-ref-docs

## --- checks

verify: generate ## fail when generated files are not those that are checked in
	@git diff --exit-code --stat -- api deploy/crds docs/reference || \
		{ echo "generated files differ: run 'make generate' and commit the result"; exit 1; }
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt:"; gofmt -l $$(git ls-files '*.go'); exit 1; }

assets: $(LAB) ## build what the tests need for a real API server
	@$(LAB) assets >/dev/null

# What runs more than one goroutine, with all its tests; and of whole clusters one run of
# each sort: in memory, on a real API server with an operator that is killed, the CSI operator.
RACE := ./internal/kit/... ./internal/kube/... ./internal/ceph/... ./internal/csi/... ./internal/mgr ./internal/envtestx ./cmd/castellan \
	$(addprefix ./internal/node/,discover inspect provision rawosd run sanitize watch)
RACE_LAB := ./guest/agent ./command ./progress ./load ./ceph/kube ./node/proc
RACE_WHOLE := ^(TestAddANode|TestCreate|TestCrashAtEveryEffect|TestKilledAgainAndAgain|TestFromManifestToReady|TestMonFailover|TestDriverLife|TestTrap15Races|TestWiring)$$

test: assets ## everything but the lab: unit tests and tests on a real API server
	KUBEBUILDER_ASSETS="$$($(LAB) assets)" go test -timeout 20m ./...
	cd lab && go test ./...
	cd test/csidriver && go test ./...
	@$(MAKE) -s charts

charts: assets ## the Helm charts, by Helm and on a real API server
	cd test/chart && KUBEBUILDER_ASSETS="$$($(LAB) assets)" go test -timeout 10m ./...

race: assets ## what is concurrent under the race detector, and a few lives of whole clusters
	KUBEBUILDER_ASSETS="$$($(LAB) assets)" CGO_ENABLED=1 go test -race -short -vet=off -timeout 20m $(RACE)
	KUBEBUILDER_ASSETS="$$($(LAB) assets)" CGO_ENABLED=1 go test -race -short -vet=off -timeout 20m -run '$(RACE_WHOLE)' \
		./test/crash ./test/replace ./test/cephcluster ./test/csi ./test/operator
	cd lab && CGO_ENABLED=1 go test -race -short -vet=off -timeout 20m $(RACE_LAB)

race-all: assets ## all tests under the race detector
	KUBEBUILDER_ASSETS="$$($(LAB) assets)" CGO_ENABLED=1 go test -race -timeout 90m ./...
	cd lab && CGO_ENABLED=1 go test -race -timeout 90m ./...

smoke: lab ## a lab's whole life: up with three nodes, pods, disks, a storage guest, down
	cd lab && CASTELLAN_LAB_REQUIRE=1 go test -count=1 -timeout 25m -v ./smoke/... ./guest

smoke-guest: lab ## Ceph on LVM in the storage guest (several minutes)
	cd lab && CASTELLAN_LAB_REQUIRE=1 go test -count=1 -timeout 60m -v ./guest/...

FUZZTIME ?= 30s
fuzz: ## every fuzz test for FUZZTIME (30s)
	go run ./hack/fuzz -time $(FUZZTIME) api internal

fuzz-api: ## decoding of every kind for FUZZTIME (30s)
	go run ./hack/fuzz -time $(FUZZTIME) api

lint: $(TOOLS)/golangci-lint ## go vet and golangci-lint, all modules
	go vet ./... && cd lab && go vet ./...
	$(TOOLS)/golangci-lint run ./...
	cd lab && $(TOOLS)/golangci-lint run --config ../.golangci.yml ./...
	for m in chart csidriver; do (cd test/$$m && $(TOOLS)/golangci-lint run --config ../../.golangci.yml ./...); done

tools: $(TOOLS)/golangci-lint $(TOOLS)/controller-gen $(TOOLS)/crd-ref-docs ## build the pinned tools into the cache

$(TOOLS)/golangci-lint:
	@echo "building golangci-lint (once; takes a few minutes)"
	cd tools && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(TOOLS)/controller-gen:
	cd tools && go build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen
$(TOOLS)/crd-ref-docs:
	cd tools && go build -o $@ github.com/elastic/crd-ref-docs

FORCE:
.PHONY: help lab up down e2e csi-standin e2e-csi binaries kubectl-plugin generate verify assets test charts race race-all smoke smoke-guest fuzz fuzz-api lint tools FORCE
