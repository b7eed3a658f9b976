// Package e2e proves that Stepwell keeps its promises to those who use it: real server processes, real
// Postgres, and an app on the real npm packages, driven and watched from outside over HTTP. The app exists once
// for each line of the Workflow SDK that is served (folders app, beta35 and beta55), and all cases are for all
// lines that can do what they take.
//
// It imports nothing of the module but migrations/testdb, so what it knows of the wire it has from the
// protocol, as a client would. There is nothing in it but tests: TestStepwell lists what runs on one
// healthy server, the other tests are about what happens to servers.
package e2e
