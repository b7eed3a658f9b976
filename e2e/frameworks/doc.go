// Package frameworks tests apps of the Workflow SDK in the frameworks in which people use it: folders next, nitro and
// sveltekit. The tests install each app with each line of the SDK and the World from a server, as the documentation
// says, and run it in development, with changes of its sources meanwhile, and in production. The apps register
// themselves, and the SDK's command line runs in their folders.
//
// Like package e2e, it is a black-box test and contains only tests. They take minutes, because they install the
// frameworks from npm and build with them. To run them, use
//
//	make frameworks
package frameworks
