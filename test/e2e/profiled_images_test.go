package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prism-gpu/prism/test/debian"
)

// nsysVersion is that of Nsight Systems in the Debian release nsysRelease. It cannot leave the environment of a process out of its report.
const nsysVersion, nsysRelease = "2022.4.2", "bookworm"

// Images of pods that are profiled, and of the profiler.
const (
	nsysImage = "localhost/nsys:" + nsysVersion
	// programsImage has interpreters, libraries and the programs of testdata/profile in /opt.
	programsImage = "localhost/prism-test-programs:1"
	// minimalImage has the GNU C library, musl, and one program for each of them, and a static one: no shell.
	minimalImage = "localhost/prism-test-minimal:1"
)

// nsysDirectory is where Nsight Systems are in their image.
const nsysDirectory = "usr/lib/nsight-systems"

// Parts of nsysDirectory that only its graphical interface and GPUs need: most of it.
var unneededOfNsys = []string{
	"host-linux-x64/libQt6*", "host-linux-x64/libNvQtGui.so", "host-linux-x64/libicu*", "host-linux-x64/translations", "host-linux-x64/Plugins",
	"host-linux-x64/nsys-ui*", "host-linux-x64/CrashReporter", "host-linux-x64/libexec", "host-linux-x64/libTimelineWidget.so", "host-linux-x64/libTimelineUIUtils.so",
	"host-linux-x64/libQtPropertyBrowser.so", "target-linux-x64/libcupti.so.10.*", "target-linux-x64/libcupti.so.11.[0-7]", "target-linux-x64/CollectX",
}

// Packages that the images are made of, of nsysRelease.
var (
	nsysLibraries = debian.Package{
		Name: "debian-nsys-libraries-" + nsysRelease, Package: "libstdc++6", Release: nsysRelease, Free: true, With: []string{
			"libgcc-s1", "libpfm4", "libssh-4", "libssl3", "zlib1g", "libgssapi-krb5-2", "libkrb5-3", "libk5crypto3", "libkrb5support0",
			"libcom-err2", "libkeyutils1",
		},
	}
	testPrograms = debian.Package{
		Name: "debian-test-programs-1-" + nsysRelease, Package: "python3.11-minimal", Release: nsysRelease, Free: true, With: []string{
			"libpython3.11-minimal", "libpython3.11-stdlib", "python3-minimal", "libexpat1", "zlib1g", "libssl3", "libffi8", "bash", "libtinfo6",
			"libjemalloc2", "libgcc-s1", "libstdc++6", "libnvtoolsext1",
		},
	}
	musl = debian.Package{Name: "debian-musl-" + nsysRelease, Package: "musl", Release: nsysRelease, Free: true}
)

var allImages = []image{
	{nsysImage, []debian.Package{debian.NsightSystems(nsysRelease), nsysLibraries}, []string{"libc6"}, trimNsys},
	// With what the importer needs: a container that keeps its reports imports them.
	{programsImage, []debian.Package{testPrograms, nsysLibraries}, []string{"libc6", "busybox-static"}, addScripts},
	{minimalImage, []debian.Package{musl}, []string{"libc6"}, addPrograms},
}

// images are the archives of the images above, made into the user's cache where they are not there: NVIDIA's files are in no other place.
// The error says what of Debian is not available.
var images = sync.OnceValues(func() ([]string, error) {
	c, err := connected()
	if err != nil {
		return nil, err
	}
	var archives []string
	for _, one := range allImages {
		archive, err := c.imageArchive(one)
		if err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
})

// image is what one is made of: packages of nsysRelease, packages of this machine's release, and what a function adds to the first.
type image struct {
	name     string
	packages []debian.Package
	base     []string
	change   func(c *cluster, root string) error
}

var errNotAvailable = errors.New("a package of Debian is not available")

// imageArchive makes the archive of an image. Its name has a hash of what it is made of.
func (c *cluster) imageArchive(one image) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash, err := c.contentOf(one)
	if err != nil {
		return "", err
	}
	archive := filepath.Join(cache, "prism/images", "e2e-"+strings.NewReplacer("/", "-", ":", "-").Replace(one.name)+"-"+hash+".tar")
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	root, err := os.MkdirTemp(filepath.Join(cache, "prism"), ".image-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(root)
	for _, of := range one.packages {
		dir, err := of.Unpacked(context.Background(), true)
		if err != nil {
			return "", fmt.Errorf("%w: %s: %w", errNotAvailable, of.Package, err)
		}
		// Links to the files suffice: nothing of them is changed.
		if _, err := c.run("", "cp", "--archive", "--link", "--force", dir+"/.", root); err != nil {
			return "", err
		}
	}
	if err := one.change(c, root); err != nil {
		return "", fmt.Errorf("making image %s: %w", one.name, err)
	}
	_, err = c.run("", filepath.Join(c.root, "bin/localcluster"), "image", "build", "--name", one.name, "--output", archive, "--rootfs", root,
		"--debian", strings.Join(one.base, ","))
	return archive, err
}

// contentOf is a short hash of what an image is made of.
func (c *cluster) contentOf(one image) (string, error) {
	sum := sha256.New()
	fmt.Fprint(sum, one.packages, one.base, unneededOfNsys)
	err := fs.WalkDir(os.DirFS(c.testdata()), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(c.testdata(), path))
		fmt.Fprint(sum, path, len(text))
		sum.Write(text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:12], err
}

// testdata has the programs that are profiled.
func (c *cluster) testdata() string { return filepath.Join(c.root, "test/e2e/testdata/profile") }

// trimNsys leaves out what records and imports nothing.
func trimNsys(_ *cluster, root string) error {
	for _, pattern := range unneededOfNsys {
		found, err := filepath.Glob(filepath.Join(root, nsysDirectory, pattern))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("Nsight Systems %s have no %s: %w", nsysVersion, pattern, errors.Join(err, fs.ErrNotExist))
		}
		for _, path := range found {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// addScripts adds the programs of testdata/profile that are interpreted.
func addScripts(c *cluster, root string) error {
	for _, dir := range []string{"opt", "usr/local/bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"facts.py", "server.py", "train.py", "nvtx.py", "script.sh", "signals.sh"} {
		if err := c.install(name, filepath.Join(root, "opt", name)); err != nil {
			return err
		}
	}
	return c.install("torchrun", filepath.Join(root, "usr/local/bin/torchrun"))
}

func (c *cluster) install(name, to string) error {
	_, err := c.run("", "install", "-m", "755", filepath.Join(c.testdata(), name), to)
	return err
}

// addPrograms builds the program of the GNU C library, the one of musl and the static one.
func addPrograms(c *cluster, root string) error {
	source, opt := filepath.Join(c.testdata(), "facts.c"), filepath.Join(root, "opt")
	if err := os.MkdirAll(opt, 0o755); err != nil {
		return err
	}
	loaders, err := filepath.Glob(filepath.Join(root, "lib/ld-musl-*.so.1"))
	if err != nil || len(loaders) != 1 {
		return fmt.Errorf("package musl has %d loaders: %w", len(loaders), errors.Join(err, fs.ErrNotExist))
	}
	start := filepath.Join(root, "start.c")
	if err := os.WriteFile(start, []byte(startOfMusl), 0o644); err != nil {
		return err
	}
	for _, line := range [][]string{
		{"gcc", "-O1", "-fno-builtin", "-o", filepath.Join(opt, "facts"), source},
		// Its C library is its loader, which makes that ready before the program begins.
		{"gcc", "-O1", "-fno-builtin", "-fno-stack-protector", "-nostdlib", "-no-pie", "-o", filepath.Join(opt, "facts-musl"),
			"-Wl,--dynamic-linker=/lib/" + filepath.Base(loaders[0]), start, source, "-L" + filepath.Join(root, "lib/x86_64-linux-musl"), "-l:libc.so"},
		{"env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", filepath.Join(opt, "facts-static"), "./test/e2e/testdata/profile/static"},
	} {
		if _, err := c.run("", line...); err != nil {
			return err
		}
	}
	return os.Remove(start)
}

// startOfMusl begins a program that is linked without musl's headers and start files.
const startOfMusl = `int main(int, char **);
void _exit(int);
__attribute__((used)) static void begin(long *stack) { _exit(main((int)*stack, (char **)(stack + 1))); }
__asm__(".globl _start\n_start: xor %ebp, %ebp; mov %rsp, %rdi; and $-16, %rsp; call begin\n");
`
