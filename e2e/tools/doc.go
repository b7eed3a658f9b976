// Package tools proves that the Workflow SDK's own tools work on Stepwell, unmodified: of each line the command
// line and the dashboard, whose one page is looked at in a browser, and the conformance suite that the SDK's
// authors test their Worlds with.
//
// Like package e2e, it knows servers, apps and tools from outside only, and there is nothing in it but tests.
// What the tools say is compared with what the app did and with the log as /v1 tells it.
package tools
