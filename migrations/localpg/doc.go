// Package localpg runs a private Postgres server as a child of this process: the database of
// `stepwell dev` (a lasting data folder) and of the tests (a throwaway one).
//
// It imports nothing of ours, and only `cmd/stepwell` and tests may import it: a production server is
// given a database, it never starts one.
//
// # Where the programs come from
//
// Start takes the first that works: initdb and postgres side by side in a folder of PATH; the folders in
// which the usual packages put them, newest version first; a Docker daemon that answers; a download. A
// data folder that exists already decides its own version: only programs of that major version are used.
// When nothing works, one *MissingError says what was tried and what to install.
//
// # Who may connect
//
// The server listens on 127.0.0.1 only, has no Unix socket, and asks every client for a SCRAM password:
// random, made with the folder, and kept in it readable by its owner alone. Trusting loopback instead would
// make every user and every program of the machine a superuser, who may run commands through COPY PROGRAM.
//
// # Who the server runs as
//
// As the current user; Postgres refuses root, so root hands the server to the owner of an existing data
// folder, else to the user postgres, else to nobody. That user must be able to reach the folder.
//
// # How it ends
//
// The server never outlives its owner, not even one that was killed: on Linux the kernel signals it when
// the thread that started it dies (a thread kept for that alone), and everywhere a small shell process
// waits for the owner's end, stops the server, and removes the folder if it was a throwaway. Throwaway
// folders that escaped both (a power cut, a killed container) are swept by the next Start.
//
// Two advisory file locks say who lives: owner.lock is held by the process that called Start, server.lock
// is inherited by postgres and all its children, so it is free exactly when the last of them is gone.
// Process IDs are not trusted for this: they are reused, and in containers soon.
package localpg
