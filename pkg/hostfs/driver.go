package hostfs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// DriverRoot is a directory that contains a driver installation like the "/" of a host. Values compare with ==; different values are
// different installations.
type DriverRoot struct {
	// HostPath is the directory's path on the host: "/" or "/run/nvidia/driver".
	HostPath string
	// Path is the same directory as this process sees it.
	Path string
	// DevHostPath is the host directory whose dev/ contains the driver's device nodes: HostPath if it contains such a dev/, otherwise "/".
	DevHostPath string
	// Library is the path of the NVML library in this process, with links resolved: ".../libnvidia-ml.so.580.95.05".
	Library string
	// LibraryID differs when another file replaces the library.
	LibraryID FileID
	// Version is the version in the library's file name, empty if there is none.
	Version string
	// Search lists further directories of the root that are searched for programs first, joined with ":".
	Search string
}

// FileID identifies the content of a file without reading it.
type FileID struct {
	Device, Inode uint64
	Size          int64
	// ModTime is in nanoseconds since 1970.
	ModTime int64
}

const libraryName = "libnvidia-ml.so.1"

var (
	// knownDriverRoots are checked in this order: the host, the GPU operator's driver container, GKE's installer.
	knownDriverRoots = []string{"/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"}

	// libraryDirs are the directories of a driver root in which distributions and installers put the library.
	libraryDirs = []string{
		"/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
		"/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu",
		"/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/aarch64-linux-gnu/nvidia/current", // Debian, without alternatives
		"/usr/lib",                 // Arch
		"/usr/local/glibc/usr/lib", // Talos
		"/run/opengl-driver/lib",   // NixOS
		"/usr/lib/nvidia/tesla",    // Bottlerocket
		"/usr/lib/wsl/lib",         // WSL
		"/",
	}
)

// FindDriver returns the driver installation of the host. A non-empty explicit path is the only candidate. Otherwise the candidates are
// knownDriverRoots: of several installations, it prefers the one with the version of the loaded kernel module, or the first.
// gpu.ErrDriverNotLoaded: no installation was found; the error lists the directories and the flag to set.
func (f *FS) FindDriver(explicit string) (DriverRoot, error) {
	candidates := knownDriverRoots
	if explicit != "" {
		if !filepath.IsAbs(explicit) {
			return DriverRoot{}, fmt.Errorf("driver root %q is not an absolute path of the host: set --driver-root "+
				"(chart value nvidiaDriverRoot) to one such as /run/nvidia/driver, or leave it empty to detect it", explicit)
		}
		candidates = []string{filepath.Clean(explicit)}
	}
	var found []DriverRoot
	for _, hostPath := range candidates {
		if root, ok := f.driverAt(hostPath); ok {
			found = append(found, root)
		}
	}
	if len(found) == 0 {
		return DriverRoot{}, f.notFoundError(candidates, explicit != "")
	}
	return f.preferred(found), nil
}

// driverAt returns the installation at the host's path, false if it contains no library.
func (f *FS) driverAt(hostPath string) (DriverRoot, bool) {
	seen, err := f.resolve(hostPath)
	if err != nil {
		return DriverRoot{}, false
	}
	for _, dir := range slices.Concat(f.search, libraryDirs) {
		// Absolute links in a driver root refer to files inside it.
		library, err := resolveIn(seen, filepath.Join(dir, libraryName))
		if err != nil {
			continue
		}
		id, ok := fileID(library)
		if !ok {
			continue
		}
		return DriverRoot{
			HostPath: hostPath, Path: seen, DevHostPath: f.devRoot(hostPath),
			Library: library, LibraryID: id, Version: libraryVersion(library), Search: strings.Join(f.search, ":"),
		}, true
	}
	return DriverRoot{}, false
}

// devRoot returns the host directory whose dev/ contains the device nodes of the driver at hostPath.
func (f *FS) devRoot(hostPath string) string {
	if _, err := f.CharDevice(filepath.Join(hostPath, "dev/nvidiactl")); err == nil {
		return hostPath
	}
	return "/"
}

// preferred returns the installation whose library matches the version of the loaded kernel module, or the first one. Files of an older
// installation may still exist.
func (f *FS) preferred(found []DriverRoot) DriverRoot {
	loaded := f.KernelModule()
	for _, root := range found {
		if loaded != "" && root.Version == loaded {
			return root
		}
	}
	return found[0]
}

// moduleVersion matches the version in lines such as
// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build".
var moduleVersion = regexp.MustCompile(`(?m)^NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s`)

// KernelModule returns the version of the loaded NVIDIA kernel module, empty if none is loaded.
func (f *FS) KernelModule() string {
	raw, err := f.read("/proc/driver/nvidia/version")
	if err != nil {
		return ""
	}
	if match := moduleVersion.FindSubmatch(raw); match != nil {
		return string(match[1])
	}
	return ""
}

// moduleDir exists while the kernel module is loaded.
const moduleDir = "/sys/module/nvidia"

// DriverLoad identifies the current load of the NVIDIA kernel module: it changes with each load in this boot. Empty: no module is
// visible, although one may be loaded.
func (f *FS) DriverLoad() string {
	seen, err := f.resolve(moduleDir)
	if err != nil {
		return ""
	}
	var stat unix.Stat_t
	if err := unix.Stat(seen, &stat); err != nil {
		return ""
	}
	// sysfs allocates inode numbers in sequence and does not reuse them. Its timestamps do not show the time of the load.
	return strconv.FormatUint(stat.Ino, 10)
}

// libraryVersion returns the version in a file name such as libnvidia-ml.so.580.95.05.
func libraryVersion(library string) string {
	version := strings.TrimPrefix(filepath.Base(library), "libnvidia-ml.so.")
	if !strings.Contains(version, ".") || version == filepath.Base(library) {
		return ""
	}
	return version
}

// fileID identifies the regular, non-empty file at a path of this process; false for anything else. An installer is still writing an empty
// file.
func fileID(path string) (FileID, bool) {
	info, err := os.Lstat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return FileID{}, false
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return FileID{}, false
	}
	return FileID{Device: stat.Dev, Inode: stat.Ino, Size: stat.Size, ModTime: stat.Mtim.Nano()}, true
}

// listed formats directories of a root for an error.
func listed(dirs []string) string {
	names := make([]string, 0, len(dirs))
	for _, dir := range dirs {
		name := strings.TrimPrefix(dir, "/")
		if name == "" {
			name = "the root itself"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// notFoundError lists the directories in which the library is expected, and says what to do.
func (f *FS) notFoundError(candidates []string, explicit bool) error {
	advice := "install the NVIDIA driver on this node, or name its directory with --driver-root (chart value nvidiaDriverRoot)"
	if explicit {
		advice = "install the NVIDIA driver there, or correct --driver-root (chart value nvidiaDriverRoot); empty detects it"
	}
	return fmt.Errorf("finding %s below %s (in %s): %w; %s; if its libraries are in another directory of its root, add this directory with "+
		"--driver-search-dirs (chart value nvidiaSearchDirs)",
		libraryName, strings.Join(candidates, ", "), listed(slices.Concat(f.search, libraryDirs)), gpu.ErrDriverNotLoaded, advice)
}
