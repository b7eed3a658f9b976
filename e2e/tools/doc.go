// Package tools tests that the Workflow SDK's own tools work with Stepwell unmodified: the command line and the
// dashboard of each SDK line, including the dashboard's pages in a browser, and the conformance suite that the SDK's
// authors use for Worlds.
//
// Like package e2e, it is a black-box test and contains only tests. It compares the output of the tools with what the
// app did, and with the log from the /v1 API.
package tools
