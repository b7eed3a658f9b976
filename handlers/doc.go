// Package handlers assembles the HTTP server from the packages below it, and maps errors to statuses in one table.
// Package wire serves clients of the Workflow SDK, package rest the native API, and package webhook public webhooks.
package handlers
