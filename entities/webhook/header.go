package webhook

import (
	"slices"
	"strings"
)

// shared lists the response headers that affect more than their response: what browsers keep for the whole origin, and
// what tells a proxy in front of the server to answer with something else.
var shared = []string{
	"accept-ch", "alt-svc", "clear-site-data", "critical-ch", "expect-ct", "nel", "origin-agent-cluster",
	"origin-trial", "public-key-pins", "public-key-pins-report-only", "report-to", "reporting-endpoints",
	"service-worker-allowed", "set-cookie", "set-cookie2", "set-login", "strict-transport-security",
	"use-as-dictionary",
	"x-reproxy-url", "x-sendfile",
}

// sharedPrefixes start further headers for proxies.
var sharedPrefixes = []string{"x-accel-", "x-lighttpd-", "x-litespeed-"}

// SharedHeader reports whether a response header affects more than its response. Workflows and apps must not set one:
// all projects share the server's origin.
func SharedHeader(name string) bool {
	name = strings.ToLower(name)
	return slices.Contains(shared, name) ||
		slices.ContainsFunc(sharedPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
