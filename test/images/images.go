// Package images creates container images of pods that are profiled, and the image of the profiler, from Debian's packages. It stores them
// only in the user's cache, as NVIDIA's files may not be passed on.
package images

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/prism-gpu/prism/test/debian"
)

// NsysVersion is the version of Nsight Systems in the Debian release NsysRelease. It cannot leave the environment of a process out of its
// report.
const NsysVersion = "2022.4.2"

// NsysRelease is a release of Debian.
const NsysRelease = "bookworm"

// LaterNsysVersion is the version of Nsight Systems in the Debian release LaterNsysRelease.
const LaterNsysVersion = "2023.4.4"

// LaterNsysRelease is the release after NsysRelease.
const LaterNsysRelease = "trixie"

// Images of pods that are profiled, and of the profiler.
const (
	NsysImage      = "localhost/nsys:" + NsysVersion
	LaterNsysImage = "localhost/nsys:" + LaterNsysVersion
	// CountersImage is LaterNsysImage without its importer, whose nsys lists GPUs from a file as GPUs with counters.
	CountersImage = "localhost/nsys-counters:" + LaterNsysVersion
	// ProgramsImage contains interpreters, libraries and the programs of testdata/profile in /opt.
	ProgramsImage = "localhost/prism-test-programs:1"
	// MinimalImage contains the GNU C library, musl, and one program for each of them, and a static one. It contains no shell.
	MinimalImage = "localhost/prism-test-minimal:1"
	// DistrolessImage is MinimalImage with libgcc_s.so.1, like other images without a shell for C and C++.
	DistrolessImage = "localhost/prism-test-distroless:1"
)

// NsysDirectory is the directory of Nsight Systems in the image.
const NsysDirectory = "usr/lib/nsight-systems"

// Parts of NsysDirectory that only its graphical interface and GPUs need: most of it.
var unneededOfNsys = []string{
	"host-linux-x64/libQt6*", "host-linux-x64/libNvQtGui.so", "host-linux-x64/libicu*", "host-linux-x64/translations", "host-linux-x64/Plugins",
	"host-linux-x64/nsys-ui*", "host-linux-x64/CrashReporter", "host-linux-x64/libexec", "host-linux-x64/libTimelineWidget.so", "host-linux-x64/libTimelineUIUtils.so",
	"host-linux-x64/libQtPropertyBrowser.so", "target-linux-x64/libcupti.so.10.*", "target-linux-x64/libcupti.so.11.*", "target-linux-x64/CollectX",
}

// Packages of NsysRelease for the images.
var (
	nsysLibraries = debian.Package{
		Name: "debian-nsys-libraries-" + NsysRelease, Package: "libstdc++6", Release: NsysRelease, Free: true, With: []string{
			"libgcc-s1", "libpfm4", "libssh-4", "libssl3", "zlib1g", "libgssapi-krb5-2", "libkrb5-3", "libk5crypto3", "libkrb5support0",
			"libcom-err2", "libkeyutils1",
		},
	}
	laterLibraries = debian.Package{Name: "debian-nsys-later-libraries-" + NsysRelease, Package: "libelf1", Release: NsysRelease, Free: true}
	testPrograms   = debian.Package{
		Name: "debian-test-programs-1-" + NsysRelease, Package: "python3.11-minimal", Release: NsysRelease, Free: true, With: []string{
			"libpython3.11-minimal", "libpython3.11-stdlib", "python3-minimal", "libexpat1", "zlib1g", "libssl3", "libffi8", "bash", "libtinfo6",
			"libjemalloc2", "libgcc-s1", "libstdc++6", "libnvtoolsext1",
		},
	}
	musl = debian.Package{Name: "debian-musl-" + NsysRelease, Package: "musl", Release: NsysRelease, Free: true}
)

// image lists the contents of an image: packages of NsysRelease, packages of this machine's release, a function that adds files, and the
// text of files that are not in testdata/profile.
type image struct {
	packages []debian.Package
	base     []string
	change   func(m maker, root string) error
	text     string
}

// nsysOfCounters is the nsys of CountersImage.
//
//go:embed nsys-counters.sh
var nsysOfCounters string

// images are all images by name.
var images = map[string]image{
	NsysImage:      {packages: []debian.Package{debian.NsightSystems(NsysRelease), nsysLibraries}, base: []string{"libc6"}, change: trimNsys},
	LaterNsysImage: {packages: laterNsys, base: []string{"libc6"}, change: completeNsys},
	CountersImage:  {packages: laterNsys, base: []string{"libc6", "busybox-static"}, change: addCounters, text: nsysOfCounters},
	// This includes the files that the importer needs: a container that keeps its reports imports them.
	ProgramsImage: {packages: []debian.Package{testPrograms, nsysLibraries}, base: []string{"libc6", "busybox-static"}, change: addScripts},
	MinimalImage:  {packages: []debian.Package{musl}, base: []string{"libc6"}, change: addPrograms},

	DistrolessImage: {packages: []debian.Package{musl}, base: []string{"libc6", "libgcc-s1"}, change: addPrograms},
}

// laterNsys are the packages of LaterNsysVersion.
var laterNsys = []debian.Package{debian.NsightSystems(LaterNsysRelease), nsysLibraries, laterLibraries}

// ErrNotAvailable is the error if this machine cannot reach Debian's archive.
var ErrNotAvailable = errors.New("a package of Debian is not available")

// Nsys returns the path of nsys on this machine.
func Nsys(ctx context.Context) (string, error) {
	dir, err := debian.NsightSystems(NsysRelease).Unpacked(ctx, true)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNotAvailable, err)
	}
	return filepath.Join(dir, NsysDirectory, "target-linux-x64/nsys"), nil
}

// maker creates images from files below root, the folder of the repository.
type maker struct {
	ctx  context.Context //nolint:containedctx // of one call
	root string
}

// Archive returns the archive of an image, and creates it if it is missing; its name contains a hash of the contents. root is the folder of
// the repository, whose bin contains localcluster. The error is ErrNotAvailable if Debian cannot be reached.
func Archive(ctx context.Context, root, name string) (string, error) {
	m, of := maker{ctx, root}, images[name]
	if of.change == nil {
		return "", fmt.Errorf("making image %s: unknown image; valid images: %v", name, slices.Sorted(maps.Keys(images)))
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	hash, err := m.contentOf(of)
	if err != nil {
		return "", err
	}
	archive := filepath.Join(cache, "prism/images", "e2e-"+strings.NewReplacer("/", "-", ":", "-").Replace(name)+"-"+hash+".tar")
	if _, err := os.Stat(archive); err == nil {
		return archive, nil
	}
	files, err := os.MkdirTemp(filepath.Join(cache, "prism"), ".image-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(files)
	for _, p := range of.packages {
		dir, err := p.Unpacked(ctx, true)
		if err != nil {
			return "", fmt.Errorf("%w: %s: %w", ErrNotAvailable, p.Package, err)
		}
		// Links to the files suffice, as none of them changes.
		if err := m.run("cp", "--archive", "--link", "--force", dir+"/.", files); err != nil {
			return "", err
		}
	}
	if err := of.change(m, files); err != nil {
		return "", fmt.Errorf("making image %s: %w", name, err)
	}
	return archive, m.run(filepath.Join(root, "bin/localcluster"), "image", "build", "--name", name, "--output", archive, "--rootfs", files,
		"--debian", strings.Join(of.base, ","))
}

// run runs a program in the folder of the repository.
func (m maker) run(program string, args ...string) error {
	command := exec.CommandContext(m.ctx, program, args...)
	command.Dir = m.root
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, out)
	}
	return nil
}

// contentOf returns a short hash of the contents of an image.
func (m maker) contentOf(of image) (string, error) {
	sum := sha256.New()
	fmt.Fprint(sum, of.packages, of.base, unneededOfNsys)
	fmt.Fprint(sum, of.text)
	err := fs.WalkDir(os.DirFS(m.testdata()), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(m.testdata(), path))
		fmt.Fprint(sum, path, len(text))
		sum.Write(text)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:12], err
}

// testdata returns the folder of the programs that are profiled.
func (m maker) testdata() string { return filepath.Join(m.root, "test/e2e/testdata/profile") }

// trimNsys removes the files that neither record nor import.
func trimNsys(_ maker, root string) error {
	for _, pattern := range unneededOfNsys {
		found, err := filepath.Glob(filepath.Join(root, NsysDirectory, pattern))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("no %s in package nsight-systems: %w", pattern, errors.Join(err, fs.ErrNotExist))
		}
		for _, path := range found {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// completeNsys adds libraries that NVIDIA's own packages contain. Debian's leave them out, as Debian packages them separately, and
// containers may lack these packages.
func completeNsys(m maker, root string) error {
	if err := trimNsys(m, root); err != nil {
		return err
	}
	for _, name := range []string{"libelf.so.1", "libz.so.1"} {
		found, err := filepath.Glob(filepath.Join(root, "*", "*", name))
		more, moreErr := filepath.Glob(filepath.Join(root, "usr/lib/*", name))
		if found = append(found, more...); err != nil || moreErr != nil || len(found) == 0 {
			return fmt.Errorf("no package contains %s: %w", name, errors.Join(err, moreErr, fs.ErrNotExist))
		}
		if err := m.run("cp", "--dereference", found[0], filepath.Join(root, NsysDirectory, "target-linux-x64", name)); err != nil {
			return err
		}
	}
	return nil
}

// addCounters removes the importer, which is not needed to record, and wraps nsys.
func addCounters(m maker, root string) error {
	if err := completeNsys(m, root); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(root, NsysDirectory, "host-linux-x64")); err != nil {
		return err
	}
	nsys := filepath.Join(root, NsysDirectory, "target-linux-x64/nsys")
	if err := os.Rename(nsys, nsys+"-real"); err != nil {
		return err
	}
	return os.WriteFile(nsys, []byte(nsysOfCounters), 0o755)
}

// addScripts adds the scripts of testdata/profile.
func addScripts(m maker, root string) error {
	for _, dir := range []string{"opt", "usr/local/bin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for _, name := range []string{"facts.py", "server.py", "train.py", "nvtx.py", "script.sh", "signals.sh"} {
		if err := m.install(name, filepath.Join(root, "opt", name)); err != nil {
			return err
		}
	}
	return m.install("torchrun", filepath.Join(root, "usr/local/bin/torchrun"))
}

func (m maker) install(name, to string) error {
	return m.run("install", "-m", "755", filepath.Join(m.testdata(), name), to)
}

// addPrograms builds the program of the GNU C library, the one of musl and the static one.
func addPrograms(m maker, root string) error {
	source, opt := filepath.Join(m.testdata(), "facts.c"), filepath.Join(root, "opt")
	if err := os.MkdirAll(opt, 0o755); err != nil {
		return err
	}
	loaders, err := filepath.Glob(filepath.Join(root, "lib/ld-musl-*.so.1"))
	if err != nil || len(loaders) != 1 {
		return fmt.Errorf("found %d loaders in package musl: %w", len(loaders), errors.Join(err, fs.ErrNotExist))
	}
	start := filepath.Join(root, "start.c")
	if err := os.WriteFile(start, []byte(startOfMusl), 0o644); err != nil {
		return err
	}
	for _, line := range [][]string{
		{"gcc", "-O1", "-fno-builtin", "-o", filepath.Join(opt, "facts"), source},
		// Its C library is its loader, which initialises the library before the program begins.
		{"gcc", "-O1", "-fno-builtin", "-fno-stack-protector", "-nostdlib", "-no-pie", "-o", filepath.Join(opt, "facts-musl"),
			"-Wl,--dynamic-linker=/lib/" + filepath.Base(loaders[0]), start, source, "-L" + filepath.Join(root, "lib/x86_64-linux-musl"), "-l:libc.so"},
		{"env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", filepath.Join(opt, "facts-static"), "./test/e2e/testdata/profile/static"},
	} {
		if err := m.run(line[0], line[1:]...); err != nil {
			return err
		}
	}
	return os.Remove(start)
}

// startOfMusl is the start code of a program that is linked without musl's headers and start files.
const startOfMusl = `int main(int, char **);
void _exit(int);
__attribute__((used)) static void begin(long *stack) { _exit(main((int)*stack, (char **)(stack + 1))); }
__asm__(".globl _start\n_start: xor %ebp, %ebp; mov %rsp, %rdi; and $-16, %rsp; call begin\n");
`
