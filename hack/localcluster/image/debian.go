package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/prism-gpu/prism/hack/localcluster/parts"
)

const busybox = "busybox-static"

// Debian adds the files of Debian packages, unpacked once into the cache. It omits manuals and character-set tables, and keeps licences.
// busybox-static adds a link for each of its commands.
func (r *Rootfs) Debian(ctx context.Context, cache parts.Cache, packages []string) error {
	for _, name := range packages {
		dir := filepath.Join(cache.Dir, "debian", release()+"-"+runtime.GOARCH+"-"+name)
		err := cache.Fill(dir, func(dir string) error { return parts.Unpack(ctx, name, dir) })
		if err != nil {
			return err
		}
		if err := r.Tree(dir, superfluous); err != nil {
			return err
		}
		if name != busybox {
			continue
		}
		if err := r.linkCommands(ctx, filepath.Join(dir, "bin", "busybox")); err != nil {
			return err
		}
	}
	return nil
}

// superfluous reports whether containers do not need a file of a package.
func superfluous(name string) bool {
	if strings.HasPrefix(name, "usr/share/doc/") {
		const below = len("usr/share/doc/")
		_, file, inPackage := strings.Cut(name[below:], "/")
		return inPackage && file != "copyright"
	}
	for _, dir := range []string{"usr/share/man", "usr/share/lintian", "usr/share/locale", "usr/share/initramfs-tools", "usr/lib/x86_64-linux-gnu/gconv", "lib/x86_64-linux-gnu/gconv"} {
		if name == dir {
			return true
		}
	}
	return false
}

func (r *Rootfs) linkCommands(ctx context.Context, program string) error {
	if _, err := os.Stat(program); err != nil {
		program = filepath.Join(filepath.Dir(filepath.Dir(program)), "usr", "bin", "busybox")
	}
	out, err := exec.CommandContext(ctx, program, "--list").Output()
	if err != nil {
		return fmt.Errorf("listing the commands of busybox: %w", err)
	}
	for command := range strings.FieldsSeq(string(out)) {
		if command != "busybox" {
			r.Link("usr/bin/"+command, "busybox")
		}
	}
	return nil
}

// release is the distribution's version, so that an upgrade of the machine unpacks again.
func release() string {
	text, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_ID="); ok {
			return strings.Trim(value, `"`)
		}
	}
	return "unknown"
}
