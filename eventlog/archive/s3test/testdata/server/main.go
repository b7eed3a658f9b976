// Command server is Versity's S3 gateway on a folder: a real server for tests, which build it. It is a separate
// module, so that its dependencies stay out of Stepwell's.
//
//	server SOCKET FOLDER
//
// It serves on the Unix socket, keeps each object as a file in FOLDER/data, and takes the credentials of
// ROOT_ACCESS_KEY and ROOT_SECRET_KEY. It exits when its standard input is closed, and so when the process that
// started it ends.
package main

import (
	"context"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: server SOCKET FOLDER")
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := serve(ctx, os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context, socket, dir string) error {
	// Not every file system has extended attributes, so the metadata of objects is in separate files.
	beside := filepath.Join(dir, "meta")
	sidecar, err := meta.NewSideCar(beside)
	if err != nil {
		return err
	}
	files, err := posix.New(filepath.Join(dir, "data"), sidecar, posix.PosixOpts{SideCarDir: beside, Concurrency: 100})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(ctx, files, &embedgw.Config{
		RootUserAccess: os.Getenv("ROOT_ACCESS_KEY"), RootUserSecret: os.Getenv("ROOT_SECRET_KEY"),
		Ports: []string{socket}, Quiet: true,
		MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10_000,
	})
}
