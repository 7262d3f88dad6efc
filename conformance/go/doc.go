// Package conformance drives the official Go SDK against a running server. Everything in it is a test: each behaviour of
// ../scenarios.toml is a subtest under its own name, or is listed in unsupported_test.go with the reason.
package conformance
