// Package access has the API keys and the projects they let requests into.
//
// It imports packages entities and eventlog. Only it makes and revokes keys, and only it knows what they look like.
package access
