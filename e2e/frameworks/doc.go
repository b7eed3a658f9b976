// Package frameworks tests apps of the Workflow SDK in the frameworks in which people use it: folders next and nitro.
// The tests install the World from a server, as the documentation says, and run each app in development, with changes
// of its sources meanwhile, and in production. The apps register themselves.
//
// Like package e2e, it is a black-box test and contains only tests. They take minutes, because they install the
// frameworks from npm and build with them. To run them, use
//
//	make frameworks
package frameworks
