// Package chart tests the Helm charts of deploy/charts with Helm itself: what they
// render, that a real API server takes it, and what an upgrade leaves alone. It is a
// module of its own, so that Helm is no dependency of the operator.
//
// It also makes the charts' values.schema.json from the CRDs:
//
//	go test ./... -run TestSchema -update
package chart
