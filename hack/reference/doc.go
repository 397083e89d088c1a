// Reference generates docs/reference from the code that the pages describe: API types and their validation, published devices, metrics,
// Events, flags and chart values. Pages from tables of this package, compatibility and migration, are checked against the chart and the
// end-to-end tests.
//
//	go run ./hack/reference
package main

//go:generate go run .
