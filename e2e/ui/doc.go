// Package ui tests the dashboard in a real browser, against a running server. It imports no package of the module
// outside e2e. It uses chromedp, which the module already has for the tests of tools; a module of its own would only
// repeat its requirements, and the binary links none of them.
package ui
