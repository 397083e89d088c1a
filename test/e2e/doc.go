// Package e2e tests Prism as its users meet it: through kubectl, with the manifests of demo/specs, on a real Kubernetes with simulated
// GPUs. A claim counts as prepared when the container saw its GPU. Tests poll objects with a client of the API server, without kubectl.
//
// Start it with hack/e2e.sh, or against a cluster of one's own:
//
//	make cluster-up NAME=mine
//	eval "$(bin/localcluster --name mine env)"
//	go test -v -count 1 ./test/e2e/... -run Whole
//
// A new test is a row of the table in test/e2e/selection, which says whether it always runs, on which cluster, and which files it tests.
//
// A test begins with inParallel, which leases as many GPUs as it needs and runs while others do, or with exclusive, when it disturbs the
// node. Each runs in its own namespace, and fails if its claims leave anything on the node.
package e2e
