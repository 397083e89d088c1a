// Package bundle builds the files that a simulated driver installs: the
// libnvidia-ml of one driver version, a small nvidia-smi, and placeholders
// for the driver's other libraries and programs. It needs gcc; the result is
// cached by content, so that a node itself does not need it.
package bundle

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/test/simgpu/model"
)

//go:embed csrc
var sources embed.FS

// Dirs inside a bundle.
const (
	LibDir  = "lib"
	BinDir  = "bin"
	ToolDir = "tool"
)

// GPUMem is the program in ToolDir that allocates GPU memory: gpu-mem MiB. It holds the memory until its stdin ends.
const GPUMem = "gpu-mem"

// GPULoad is the program in ToolDir that keeps a GPU busy: gpu-load --memory 2Gi --sm 60 --duration 10s. Without a duration it works until
// it is terminated.
const GPULoad = "gpu-load"

// Ensure returns the bundle of a driver version, and builds it if dir has none.
// dir is shared: a lock makes parallel builders wait. The returned directory
// holds LibDir and BinDir.
func Ensure(ctx context.Context, dir string, driver model.DriverVersion) (string, error) {
	key, err := contentKey(driver)
	if err != nil {
		return "", err
	}
	built := filepath.Join(dir, fmt.Sprintf("%s-%s", driver, key))
	if isDir(built) {
		return built, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("building driver bundle: %w", err)
	}
	unlock, err := lockDir(dir)
	if err != nil {
		return "", err
	}
	defer unlock()
	if isDir(built) {
		return built, nil
	}
	return built, buildInto(ctx, dir, built, driver)
}

// CacheDir is the user's cache of bundles: $XDG_CACHE_HOME/prism/simgpu.
func CacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory for driver bundles: %w (set XDG_CACHE_HOME, or give --bundle)", err)
	}
	return filepath.Join(cache, "prism", "simgpu"), nil
}

func buildInto(ctx context.Context, dir, built string, driver model.DriverVersion) error {
	if _, err := exec.LookPath("gcc"); err != nil {
		return fmt.Errorf("building driver bundle %s: gcc is not installed (install gcc and libc6-dev, or give --bundle a built one)", driver)
	}
	work, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return fmt.Errorf("building driver bundle: %w", err)
	}
	defer os.RemoveAll(work)
	if err := Build(ctx, work, driver); err != nil {
		return err
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return fmt.Errorf("building driver bundle: %w", err)
	}
	if err := os.Rename(work, built); err != nil {
		return fmt.Errorf("storing driver bundle: %w", err)
	}
	return nil
}

// contentKey is a hash of everything that is part of a bundle.
func contentKey(driver model.DriverVersion) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, stubs(driver), exports(driver), libraries(driver), programs, tools, compilerFlags)
	err := fs.WalkDir(sources, "csrc", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		fmt.Fprintf(hash, "%s\n%s\n", path, text)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("reading the sources of the driver bundle: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil))[:16], nil
}

func lockDir(dir string) (func(), error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("locking %s: %w", dir, err)
	}
	return func() { file.Close() }, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// compiler runs gcc in a directory that holds all sources.
type compiler struct {
	ctx    context.Context
	dir    string
	driver model.DriverVersion
}

var compilerFlags = []string{"-O2", "-g0", "-Wall", "-Wextra", "-Werror", "-Wno-pedantic", "-fvisibility=hidden"}

func (c compiler) run(out string, args ...string) error {
	all := append([]string{}, compilerFlags...)
	all = append(all, "-DSIMGPU_DRIVER="+strconv.Quote(string(c.driver)), "-DSIMGPU_CUDA="+strconv.Itoa(c.driver.CUDA()),
		"-DSIMGPU_BRANCH="+strconv.Itoa(c.driver.Branch()), "-o", out)
	command := exec.CommandContext(c.ctx, "gcc", append(all, args...)...)
	command.Dir = c.dir
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling %s: %w\n%s", filepath.Base(out), err, text)
	}
	return nil
}
