// Package localpg runs a private Postgres server as a child of this process. It is the database of `stepwell dev`, with
// a lasting data folder, and of tests, with a throwaway one.
//
// Only `cmd/stepwell`, tests and what runs them may import it: a production server is given a database and never starts
// one.
//
// # Where Postgres comes from
//
// Start takes the first of these that works:
//
//   - initdb and postgres in one folder of PATH
//   - those in the folders of the usual packages, the newest version first
//   - a download
//
// Options.InstalledOnly skips the download. An existing data folder needs programs of its own major version. If nothing
// works, Start returns a *MissingError that lists what it tried and what to install.
//
// # Access
//
// The server listens only on 127.0.0.1, has no Unix socket, and requires a SCRAM password from every client. The
// password is random, created with the folder, and stored in it, readable only by its owner. Trusting loopback
// connections instead would make every user and program on the machine a superuser, who can run commands with COPY
// PROGRAM.
//
// # The server's user
//
// The server runs as the current user. Postgres refuses to run as root, so for root it runs as the owner of an existing
// data folder, else as the user postgres, else as nobody. That user must be able to reach the folder.
//
// # Cleaning up
//
// The server never outlives its owner, even if the owner is killed. On Linux the kernel signals the server when the
// thread that started it dies; a thread is reserved for that. On all systems a small shell process, the guardian, waits
// for the owner's death, stops the server, and removes a throwaway folder. The next Start removes throwaway folders
// that are left after a power cut or a killed container.
//
// Two file locks show which processes live. owner.lock is held by the process that called Start. server.lock is
// inherited by postgres and all its children, so it is free only when the last of them has ended. Process IDs would not
// do: they are reused, and in containers soon.
package localpg
