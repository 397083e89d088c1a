package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/hack/localcluster/parts"
	"github.com/prism-gpu/prism/hack/localcluster/report"
)

// The images on every node.
const (
	PauseName = "localhost/pause:1"
	TestName  = "localhost/prism-test:1"
)

// builtinVersion changes with the content of the built-in images.
const builtinVersion = "2"

// Builtin returns the archives of the pause and the test image, which are built into the cache if they are missing.
func Builtin(ctx context.Context, cache parts.Cache, progress *report.Progress) ([]string, error) {
	var archives []string
	for _, image := range []struct {
		file  string
		build func(context.Context, parts.Cache, string) error
	}{{"pause", Pause}, {"test", Test}} {
		dir := filepath.Join(cache.Dir, "images", image.file+"-"+builtinVersion+"-"+release())
		archive := image.file + ".tar"
		err := cache.Fill(dir, func(dir string) error {
			defer progress.Step("building the %s image", image.file)()
			return image.build(ctx, cache, filepath.Join(dir, archive))
		})
		if err != nil {
			return nil, err
		}
		archives = append(archives, filepath.Join(dir, archive))
	}
	return archives, nil
}

// pauseSource sleeps until it gets a signal, and reaps the orphan processes of a pod that shares its pid namespace.
const pauseSource = `#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal) { (void)signal; _exit(0); }
static void collect(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0) { } }

int main(void) {
  struct sigaction stop = {.sa_handler = end}, child = {.sa_handler = collect, .sa_flags = SA_NOCLDSTOP | SA_RESTART};
  sigaction(SIGINT, &stop, 0);
  sigaction(SIGTERM, &stop, 0);
  sigaction(SIGCHLD, &child, 0);
  for (;;) pause();
}
`

// Pause writes the image whose container holds the namespaces of a pod.
func Pause(ctx context.Context, _ parts.Cache, out string) error {
	dir, err := os.MkdirTemp("", "pause-*")
	if err != nil {
		return fmt.Errorf("building the pause program: %w", err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "pause")
	cmd := exec.CommandContext(ctx, "gcc", "-x", "c", "-Os", "-static", "-s", "-o", program, "-")
	cmd.Stdin = strings.NewReader(pauseSource)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the pause program: %w: %s", err, strings.TrimSpace(string(text)))
	}
	rootfs := NewRootfs(false)
	if err := rootfs.File("pause", program, 0o755); err != nil {
		return err
	}
	return Write(out, Config{Name: PauseName, Entrypoint: []string{"/pause"}, User: "65535:65535"}, rootfs)
}

// Test writes the image of test pods: Debian's C library, a shell and the usual commands. A pod without a command lists its GPUs, and fails
// without one, like CUDA's samples.
func Test(ctx context.Context, cache parts.Cache, out string) error {
	rootfs := NewRootfs(true)
	if err := rootfs.Debian(ctx, cache, []string{"libc6", busybox}); err != nil {
		return err
	}
	rootfs.Accounts()
	return Write(out, Config{Name: TestName, Entrypoint: []string{"nvidia-smi", "-L"}}, rootfs)
}

// Accounts adds the users and folders that programs expect.
func (r *Rootfs) Accounts() {
	r.Text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n", 0o644)
	r.Text("etc/group", "root:x:0:\nnogroup:x:65534:\n", 0o644)
	r.Folder("root", 0o700)
	r.Folder("tmp", 0o777|os.ModeSticky)
}
