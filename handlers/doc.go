// Package handlers is HTTP in and out: it assembles the server from the surfaces below it, with one table
// that turns errors into statuses. Package wire serves the Workflow SDK's clients, package rest the native
// API.
//
// It imports packages entities, eventlog, queue and clients, and the packages below it.
package handlers
