// Package helper has functions that workflows of other packages call.
package helper

import (
	"context"
	"os"
	"time"
)

func Stamp() string { // want Stamp:"SW001: is not deterministic: time.Now is called .helper.go:11."
	return time.Now().String()
}

func Indirect() string { return Stamp() } // want Indirect:"SW001: calls Stamp, which is not deterministic: time.Now is called"

func Pure(n int) int { return n + 1 }

//stepwell:deterministic the file is part of the program
func Embedded() string {
	data, _ := os.ReadFile("embedded")
	return string(data)
}

type Bank struct{}

func (Bank) Limit() string { return os.Getenv("LIMIT") } // want Limit:"SW004: is not deterministic: os.Getenv is called"

// Steps makes a step, which may do what it likes.
func Steps() func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return Stamp(), nil }
}
