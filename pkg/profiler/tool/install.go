package tool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/profiler/nsight"
	"github.com/prism-gpu/prism/pkg/profiler/tool/manifest"
)

// targets are the directories of the programs that record, by processor, in their order of preference.
var targets = map[string][]string{
	"amd64": {"target-linux-x64"},
	"arm64": {"target-linux-sbsa-armv8", "target-linux-armv8"},
}

// Source is a version in the image.
type Source struct {
	// Version is the version in the chart.
	Version string
	// Path is the directory of the installation: it contains target-linux-* and host-linux-*.
	Path string
}

// find returns the one directory of the installation with one of these names.
func (s Source) find(names ...string) (string, error) {
	for _, name := range names {
		path, err := filepath.EvalSymlinks(filepath.Join(s.Path, name))
		if err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("the image contains none of %s in %s; set profiler.tools[].path to the installation directory of Nsight Systems: %w",
		strings.Join(names, ", "), s.Path, fs.ErrNotExist)
}

// queryTimeout is the timeout of a program of the image that prints its version or help.
const queryTimeout = time.Minute

// query runs nsys and returns its output.
func query(ctx context.Context, nsys string, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, queryTimeout)
	defer stop()
	command := exec.CommandContext(ctx, nsys, args...)
	command.WaitDelay = time.Second
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", nsys, strings.Join(args, " "), err, tail(output))
	}
	return string(output), nil
}

// describe asks nsys for its version and switches. It refuses a version other than the chart's, because claims are planned by that version.
func (s Source) describe(ctx context.Context, nsys string) (m manifest.Manifest, err error) {
	m = manifest.New(s.Version)
	is, err := query(ctx, nsys, "--version")
	if err != nil {
		return m, err
	}
	if found := versionIn(is); found != s.Version && !strings.HasPrefix(found, s.Version+".") {
		return m, fmt.Errorf("version mismatch: the image contains Nsight Systems %q, profiler.tools[].version is %s", cmp.Or(found, strings.TrimSpace(is)), s.Version)
	}
	if m.Switches, err = switches(ctx, nsys, "profile"); err != nil {
		return m, err
	}
	// Without these commands it records processes from their start.
	var launchErr, startErr error
	m.Launch, launchErr = switches(ctx, nsys, "launch")
	m.Start, startErr = switches(ctx, nsys, "start")
	if err := cmp.Or(launchErr, startErr); err != nil {
		m.Manual = sentence(err)
	}
	return m, nil
}

// Program is a version in the image, run where it is.
type Program struct {
	nsight.Tool
	// Path is the path of nsys, Importer the directory of the importer; "" if there is none.
	Path, Importer string
}

// Program returns the version in the image.
func (s Source) Program(ctx context.Context) (Program, error) {
	dir, err := s.find(targets[runtime.GOARCH]...)
	if err != nil {
		return Program{}, err
	}
	p := Program{Path: filepath.Join(dir, "nsys")}
	m, err := s.describe(ctx, p.Path)
	if err != nil {
		return Program{}, err
	}
	p.Tool = nsight.Tool{Version: m.Version, Switches: m.Switches, Launch: m.Launch, Start: m.Start}
	if p.Importer, err = s.find(hosts...); err != nil {
		p.Importer = ""
	}
	return p, nil
}

// switches returns the switches in the help of a command of nsys.
func switches(ctx context.Context, nsys, command string) ([]string, error) {
	help, err := query(ctx, nsys, command, "--help")
	if err != nil {
		return nil, err
	}
	all := nsight.Switches(help)
	if len(all) == 0 {
		return nil, fmt.Errorf("%s %s --help lists no switches", nsys, command)
	}
	return all, nil
}

// versionIn returns the version in a text such as "NVIDIA Nsight Systems version 2022.4.2.1-df9881f".
func versionIn(text string) string {
	_, after, _ := strings.Cut(text, "version ")
	version, _, _ := strings.Cut(strings.TrimSpace(after), "-")
	return strings.TrimSpace(version)
}

// Install copies the programs that record into a separate directory below dir, which containers mount, and returns it. Existing
// installations stay unchanged.
func (s Source) Install(ctx context.Context, dir string) (manifest.Installed, error) {
	fail := func(err error) (manifest.Installed, error) {
		return manifest.Installed{}, fmt.Errorf("installing Nsight Systems %s: %w", s.Version, err)
	}
	if err := executable(dir); err != nil {
		return fail(err)
	}
	target, err := s.find(targets[runtime.GOARCH]...)
	if err != nil {
		return fail(err)
	}
	name := filepath.Base(target)
	m, err := s.describe(ctx, filepath.Join(target, "nsys"))
	if err != nil {
		return fail(err)
	}
	m.Nsys = filepath.Join(name, "nsys")
	tmp := filepath.Join(dir, manifest.Unfinished+"new-"+s.Version)
	if err := os.RemoveAll(tmp); err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := copyTree(ctx, target, filepath.Join(tmp, name), name, m.Files); err != nil {
		return fail(err)
	}
	if m.Importer, err = s.copyImporter(tmp, m.Files); err != nil {
		return fail(err)
	}
	m.Digest = digest(m.Files)
	final := filepath.Join(dir, s.Version+"-"+m.Digest[:12])
	if there, err := manifest.Read(final); err == nil && there.Digest == m.Digest {
		// An earlier version of this program read less of the help.
		there.Switches, there.Launch, there.Start, there.Manual = m.Switches, m.Launch, m.Start, m.Manual
		return manifest.Installed{Manifest: there, Dir: final}, nil
	}
	if err := errors.Join(m.Write(tmp), os.RemoveAll(final), durable(tmp)); err != nil {
		return fail(err)
	}
	if err := os.Rename(tmp, final); err != nil {
		return fail(err)
	}
	return manifest.Installed{Manifest: m, Dir: final}, nil
}

// hosts are the directories of the importer, in their order of preference.
var hosts = []string{"host-linux-x64", "host-linux-armv8"}

// importerProgram converts a raw file to a report.
const importerProgram = "QdstrmImporter"

// importers is the directory of the importer. It is not next to the programs that record, because they would then import by themselves in
// every container.
const importers = "importer"

// copyImporter copies the importer with the libraries next to it that it requires, and returns its directory: containers that keep their
// reports import them themselves. The image's other files in that directory belong to a graphical interface. With an image without an
// importer, such containers keep raw files.
func (s Source) copyImporter(to string, files map[string]string) (string, error) {
	from, err := s.find(hosts...)
	if err != nil {
		return "", nil //nolint:nilerr // there is none
	}
	name := filepath.Join(importers, filepath.Base(from))
	if err := os.MkdirAll(filepath.Join(to, name), 0o755); err != nil {
		return "", err
	}
	wanted, taken := []string{importerProgram}, map[string]bool{}
	for len(wanted) > 0 {
		file := wanted[0]
		wanted = wanted[1:]
		if taken[file] || file != filepath.Base(file) {
			continue
		}
		taken[file] = true
		sum, err := copyFile(filepath.Join(from, file), filepath.Join(to, name, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a system library
		}
		if err != nil {
			return "", err
		}
		files[filepath.Join(name, file)] = sum
		wanted = append(wanted, needed(filepath.Join(from, file))...)
	}
	return name, nil
}

// needed returns the libraries that a program or a library requires; none for other files.
func needed(path string) []string {
	file, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return nil
	}
	return libraries
}

// common are prefixes of libraries that containers with dynamic programs provide: of the C library and of the compiler.
var common = []string{"ld-linux", "libc.", "libm.", "libdl.", "libpthread.", "librt.", "libutil.", "libgcc_s.", "libstdc++."}

// foreign returns the other libraries that a program requires and that are not next to it. NVIDIA's own packages contain all; packages of a
// distribution may use its other packages.
func foreign(program string) []string {
	return slices.DeleteFunc(needed(program), func(library string) bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(program), library))
		return err == nil || slices.ContainsFunc(common, func(prefix string) bool { return strings.HasPrefix(library, prefix) })
	})
}

// executable creates the directory, and fails if containers could not execute files in it.
func executable(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", dir, err)
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("%s is mounted with the option noexec; set the chart's value stateDir to a directory whose mount allows programs", dir)
	}
	return nil
}

// durable syncs the file system of the directory: a directory named by a digest must never contain half a version.
func durable(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.Syncfs(int(file.Fd()))
}

// digest returns a digest over the names and the hashes of all files.
func digest(files map[string]string) string {
	sum := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(sum, "%s\x00%s\x00", path, files[path])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// copyTree copies regular files, directories, and links that stay inside, readable for all users. at is the path in the manifest.
func copyTree(ctx context.Context, from, to, at string, files map[string]string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}
		source, target, name := filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name()), filepath.Join(at, entry.Name())
		switch entry.Type() {
		case fs.ModeDir:
			err = copyTree(ctx, source, target, name, files)
		case fs.ModeSymlink:
			files[name], err = copyLink(source, target, name, at)
		case 0:
			files[name], err = copyFile(source, target)
		default:
			err = fmt.Errorf("%s is neither a file, a directory nor a link", source)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyLink copies a link, and returns its target instead of a hash.
func copyLink(source, target, name, at string) (string, error) {
	to, err := os.Readlink(source)
	if err != nil {
		return "", err
	}
	if root, _, _ := strings.Cut(at, "/"); filepath.IsAbs(to) || !strings.HasPrefix(filepath.Join(filepath.Dir(name), to)+"/", root+"/") {
		return "", fmt.Errorf("link %s points outside the tool's directory, to %s", source, to)
	}
	return "-> " + to, os.Symlink(to, target)
}

func copyFile(from, to string) (sum string, err error) {
	source, err := os.Open(from)
	if err != nil {
		return "", err
	}
	defer source.Close()
	info, err := source.Stat()
	if err != nil {
		return "", err
	}
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(target, hash), source)
	err = errors.Join(err, target.Chmod(info.Mode()&0o111|0o444), target.Close())
	return hex.EncodeToString(hash.Sum(nil)), err
}
