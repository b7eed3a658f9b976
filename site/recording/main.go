// Command recording records what README.md shows: an order of three steps, whose app and server are killed. It writes
// docs/images/recording.cast and recording.svg. All that is shown happens: the shell runs the commands, with the binary
// in bin. Run it by `make recording`.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/stepwell-dev/stepwell/site/cast"
)

func main() {
	repository := flag.String("repository", "..", "the folder of the `repository`, with bin/stepwell")
	out := flag.String("out", "../docs/images", "the `folder` to write to")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	scene, err := play(ctx, *repository, 1200*time.Millisecond)
	if err == nil {
		err = save(scene.recording, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// save writes the recording into a folder, as an asciicast and as a picture.
func save(r cast.Recording, folder string) error {
	var all error
	for name, write := range map[string]func(*os.File) error{
		"recording.cast": func(f *os.File) error { return r.Write(f) },
		"recording.svg":  func(f *os.File) error { return r.SVG(f) },
	} {
		f, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		all = errors.Join(all, write(f), f.Close())
	}
	return all
}
