package localpg

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The server's image, and its data folder, which is elsewhere from Postgres 18 on.
const (
	dockerImage = "postgres:17"
	dockerData  = "/var/lib/postgresql/data"
)

// docker runs the server in a container. The child is the docker command in the foreground, which forwards signals to
// the server, so a container is stopped like a process.
type docker struct {
	path string
}

// findDocker returns the Docker engine if the daemon answers.
func findDocker(ctx context.Context) (engine, error) {
	path, err := exec.LookPath("docker")
	if err != nil {
		return nil, fmt.Errorf("find docker: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := runDocker(ctx, path, "version", "--format", "{{.Server.Version}}"); err != nil {
		return nil, err
	}
	return docker{path}, nil
}

// runDocker runs a docker command and waits for it.
func runDocker(ctx context.Context, path string, args ...string) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // docker
	cmd.Stderr = &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run docker %s: %w: %s", args[0], errors.Join(ctx.Err(), err), strings.TrimSpace(out.String()))
	}
	return nil
}

// prepare pulls the image if it is missing. In a lasting folder it records that the data is in a Docker volume.
func (d docker) prepare(ctx context.Context, f *folder, _ Options) error {
	if runDocker(ctx, d.path, "image", "inspect", dockerImage) != nil {
		if err := runDocker(ctx, d.path, "pull", "--quiet", dockerImage); err != nil {
			return err
		}
	}
	if f.temporary || f.usesDocker() {
		return nil
	}
	if err := os.WriteFile(f.volumeFile(), []byte(f.volume()+"\n"), 0o600); err != nil {
		return fmt.Errorf("record Docker volume: %w", err)
	}
	return nil
}

// command returns a docker run command. A container with lasting data has a fixed name, so that Docker refuses a second
// one on the same volume. Postgres itself would not notice: its process ID is 1 in each container.
func (d docker) command(f *folder, port int, settings map[string]string) *exec.Cmd {
	args := []string{"run", "--rm", "--shm-size", "128m",
		"--publish", "127.0.0.1:" + strconv.Itoa(port) + ":5432",
		"--env", "POSTGRES_USER=" + superuser, "--env", "POSTGRES_PASSWORD",
		"--env", "POSTGRES_INITDB_ARGS=--encoding=UTF8 --locale=C",
	}
	if f.temporary {
		args = append(args, "--tmpfs", dockerData)
	} else {
		args = append(args, "--name", f.volume(), "--volume", f.volume()+":"+dockerData)
	}
	args = append(args, dockerImage)
	cmd := exec.Command(d.path, append(args, arguments(settings)...)...) //nolint:gosec // docker
	cmd.Env = append(os.Environ(), "POSTGRES_PASSWORD="+f.password)      // arguments are visible to all users
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = []*os.File{f.server}
	return cmd
}

// volumeFile is the file that records that the folder's data is in a Docker volume.
func (f *folder) volumeFile() string { return filepath.Join(f.dir, "docker-volume") }

// usesDocker reports whether the folder's data is in a Docker volume.
func (f *folder) usesDocker() bool {
	_, err := os.Stat(f.volumeFile())
	return err == nil
}

// volume is the name of the folder's volume and container.
func (f *folder) volume() string {
	sum := sha256.Sum256([]byte(f.dir))
	return "stepwell-" + hex.EncodeToString(sum[:6])
}
