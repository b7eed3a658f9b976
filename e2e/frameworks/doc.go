// Package frameworks tests apps of the Workflow SDK in the frameworks in which people use it, each in the folder of its
// name; all have the workflows of the folder workflows. The tests install each app with each line of the SDK and the
// World from a server, as the documentation says, and run it in development, with changes of its sources meanwhile, and
// in production. The apps register themselves, and the SDK's command line runs in their folders. docs/frameworks.md
// shows the files of the apps.
//
// Like package e2e, it is a black-box test and contains only tests. They take half an hour, because they install the
// frameworks from npm and build with them. To run them, or those of a framework, use
//
//	make frameworks
//	make frameworks APPS=nuxt
package frameworks
