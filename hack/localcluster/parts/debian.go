package parts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/prism-gpu/prism/hack/localcluster/report"
)

// DebianPackage is a package of the distribution and a sign that it, or an equivalent, is installed.
type DebianPackage struct {
	Name string
	// Program is found in PATH, or File (a glob) on disk, if the package is installed.
	Program, File string
}

var (
	compilerPackages = []DebianPackage{
		{Name: "gcc", Program: "gcc"},
		{Name: "libc6-dev", File: "/usr/include/stdlib.h"},
		{Name: "pkg-config", Program: "pkg-config"},
	}
	buildPackages = map[string]DebianPackage{
		"libseccomp-dev": {Name: "libseccomp-dev", File: "/usr/include/seccomp.h"},
	}
	// RunPackages are the packages that a running cluster needs.
	RunPackages = []DebianPackage{
		{Name: "iproute2", Program: "ip"},
		{Name: "util-linux", Program: "nsenter"},
		{Name: "kmod", Program: "modprobe"},
		{Name: "libseccomp2", File: "/usr/lib/*/libseccomp.so.2"},
	}
)

func (p DebianPackage) installed() bool {
	if p.Program != "" {
		if _, err := exec.LookPath(p.Program); err == nil {
			return true
		}
		found, _ := filepath.Glob("/usr/sbin/" + p.Program)
		return len(found) > 0
	}
	found, _ := filepath.Glob(p.File)
	return len(found) > 0
}

// InstallDebian installs the missing packages with apt-get. It costs nothing if none is missing.
func InstallDebian(ctx context.Context, packages []DebianPackage, progress *report.Progress) error {
	var names []string
	for _, p := range packages {
		if !p.installed() {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	list := strings.Join(names, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("these packages are missing: %s; apt-get, which would install them, is missing: install equivalent packages with the package manager of this machine", list)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("these packages are missing: %s: run `apt-get install %s` as root", list, list)
	}
	defer progress.Step("installing the Debian packages %s", list)()
	install := append([]string{"install", "-y", "--no-install-recommends"}, names...)
	if _, err := apt(ctx, install...); err == nil {
		return nil
	}
	if out, err := apt(ctx, "update"); err != nil {
		return fmt.Errorf("updating the package lists: %w: %s: check the network and apt's sources", err, lastLine(out))
	}
	if out, err := apt(ctx, install...); err != nil {
		return fmt.Errorf("installing the Debian packages %s: %w: %s: check the network and apt's sources", list, err, lastLine(out))
	}
	return nil
}

func apt(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=120"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Unpack extracts the files of a Debian package into dir, without installing it.
func Unpack(ctx context.Context, name, dir string) error {
	tmp, err := os.MkdirTemp("", "deb-*")
	if err != nil {
		return fmt.Errorf("unpacking the Debian package %s: %w", name, err)
	}
	defer os.RemoveAll(tmp)
	if err := download(ctx, name, tmp); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil || len(files) != 1 {
		return fmt.Errorf("downloading the Debian package %s: want one file, have %d", name, len(files))
	}
	if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", files[0], dir).CombinedOutput(); err != nil {
		return fmt.Errorf("unpacking the Debian package %s: %w: %s", name, err, lastLine(string(out)))
	}
	return nil
}

func download(ctx context.Context, name, dir string) error {
	fetch := func() (string, error) {
		cmd := exec.CommandContext(ctx, "apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", name)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if _, err := fetch(); err == nil {
		return nil
	}
	if out, err := apt(ctx, "update"); err != nil {
		return fmt.Errorf("updating the package lists: %w: %s: check the network and apt's sources", err, lastLine(out))
	}
	if out, err := fetch(); err != nil {
		return fmt.Errorf("downloading the Debian package %s: %w: %s: check the network and apt's sources", name, err, lastLine(out))
	}
	return nil
}
