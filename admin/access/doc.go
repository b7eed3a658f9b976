// Package access manages API keys, the projects that they give access to, and the sessions of browsers in the
// dashboard. Only this package creates and revokes keys, and only it knows their format. It has the SQL of the
// sessions' tables.
package access
