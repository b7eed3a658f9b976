// Package linear asks whether what concurrent clients saw can be what the model (e2e/model) says when the same
// requests come one after the other, while servers are killed, Postgres crashes and connections are cut, delayed and
// doubled. A request whose outcome nobody knows may have taken effect, at any time after it was made, or not.
//
// There is nothing in it but tests. They take as long as you like, best without -race:
//
//	go test ./e2e/linear -for 10m -v -timeout 0
//
// What fails is shown as few requests that cannot be in any order, and how far they can. It cannot be repeated, as
// nobody decides how requests meet; -seed repeats at least what is drawn.
package linear
