// Package access manages the API keys and the projects that they give access to. Only this package creates and revokes
// keys, and only it knows their format.
//
// It imports packages entities, entities/admin and entities/pg.
package access
