// Package debian fetches packages of Debian, for tests that use NVIDIA's own programs and libraries, which are in its non-free component,
// and for other programs in these tests. It unpacks them into the user's cache, and installs nothing.
package debian

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const keys = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Package is a package of a Debian release. Tests find it in the cache by Name.
type Package struct {
	// Name is the directory in the cache, Package the name in the archive.
	Name, Package string
	// Release is the Debian release; empty for the release of this machine.
	Release string
	// With are packages of the same release that are unpacked into the same directory.
	With []string
	// Free says that the packages are in the archive's component main, too: without it apt searches only non-free.
	Free bool
}

// NsightSystems returns NVIDIA's Nsight Systems of a Debian release: 2022.4.2 of bookworm, 2023.4.4 of trixie. In its directory, the
// command line is usr/lib/nsight-systems/target-linux-x64/nsys, and the importer usr/lib/nsight-systems/host-linux-x64/QdstrmImporter.
func NsightSystems(release string) Package {
	return Package{
		Name: "debian-nsight-systems-" + release, Package: "nsight-systems", Release: release, With: []string{"nsight-systems-target"},
	}
}

// Unpacked returns the directory with the package's files. If it is not in the cache, Unpacked fetches it with a separate apt: source,
// lists and cache are below a temporary directory.
func (p Package) Unpacked(ctx context.Context, fetch bool) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "prism", p.Name)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if !fetch {
		return "", fmt.Errorf("package %s is not in the cache, and is not to be fetched", p.Package)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(filepath.Dir(dir), ".fetch-*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	if err := p.unpack(ctx, work); err != nil {
		return "", fmt.Errorf("fetching package %s: %w", p.Package, err)
	}
	// Another process may have been first.
	if err := os.Rename(filepath.Join(work, "root"), dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

// unpack fetches the package and unpacks it into the directory root of work.
func (p Package) unpack(ctx context.Context, work string) error {
	line, err := p.source(ctx)
	if err != nil {
		return err
	}
	source := filepath.Join(work, "sources.list")
	if err := errors.Join(os.WriteFile(source, []byte(line), 0o600),
		os.MkdirAll(filepath.Join(work, "lists/partial"), 0o755),
		os.MkdirAll(filepath.Join(work, "cache/archives/partial"), 0o755)); err != nil {
		return err
	}
	own := []string{
		"-q", "-o", "Dir::Etc::sourcelist=" + source, "-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::State::Lists=" + work + "/lists", "-o", "Dir::Cache=" + work + "/cache",
		"-o", "Acquire::Retries=1", "-o", "Acquire::http::Timeout=15",
	}
	names := append([]string{p.Package}, p.With...)
	for _, command := range [][]string{{"update"}, append([]string{"download"}, names...)} {
		if err := run(ctx, work, "apt-get", append(own, command...)...); err != nil {
			return err
		}
	}
	for _, name := range names {
		packages, err := filepath.Glob(filepath.Join(work, name+"_*.deb"))
		if err != nil || len(packages) != 1 {
			return fmt.Errorf("apt-get download left %d packages %s", len(packages), name)
		}
		if err := run(ctx, work, "dpkg", "-x", packages[0], filepath.Join(work, "root")); err != nil {
			return err
		}
	}
	return nil
}

// source returns an apt source of the Debian archive that this machine uses.
func (p Package) source(ctx context.Context) (string, error) {
	targets := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(LABEL) $(COMPONENT) $(SITE) $(RELEASE)",
		"Created-By: Packages")
	output, err := targets.Output()
	if err != nil {
		return "", fmt.Errorf("finding the Debian archive: %w", err)
	}
	for line := range strings.Lines(string(output)) {
		var label, component, site, release string
		if n, _ := fmt.Sscan(line, &label, &component, &site, &release); n == 4 && label == "Debian" && component == "main" {
			if p.Release != "" {
				release = p.Release
			}
			components := "non-free"
			if p.Free {
				components = "main non-free"
			}
			return fmt.Sprintf("deb [signed-by=%s] %s %s %s\n", keys, site, release, components), nil
		}
	}
	return "", errors.New("no Debian archive is configured in apt")
}

func run(ctx context.Context, dir, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	command.Dir = dir
	if output, err := command.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		return fmt.Errorf("%s: %w: %s", program, err, lines[len(lines)-1])
	}
	return nil
}
