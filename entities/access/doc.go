// Package access manages the API keys and the projects that they give access to.
//
// It imports packages entities, entities/admin and entities/pg. It is the only package that creates and revokes keys, and the only one
// that knows their format.
package access
