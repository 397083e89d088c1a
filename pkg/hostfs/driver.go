package hostfs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/gpu"
)

// DriverRoot is a directory that holds a driver installation as "/" of a machine would. Values compare with ==; two that
// differ are two installations.
type DriverRoot struct {
	// HostPath is the directory's path on the host: "/" or "/run/nvidia/driver".
	HostPath string
	// Path is the same directory as this process sees it.
	Path string
	// DevHostPath is the host directory whose dev/ has the driver's device nodes: HostPath where it has its own, else "/".
	DevHostPath string
	// Library is the NVML library as this process sees it, links resolved: ".../libnvidia-ml.so.580.95.05".
	Library string
	// LibraryID tells this library file from another one that takes its place.
	LibraryID FileID
	// Version is the library's version as its file name says, empty where it does not.
	Version string
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
	// knownDriverRoots are looked at in this order: the host, the GPU operator's driver container, GKE's installer.
	knownDriverRoots = []string{"/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"}

	// libraryDirs are the directories of a driver root in which distributions and installers put the library.
	libraryDirs = []string{
		"/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
		"/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/",
	}
)

// FindDriver returns the driver installation of the host. A non-empty explicit path is the only candidate. Otherwise the
// known places are looked at: of several, the one that fits the loaded kernel module wins, else the first. When there is
// none the error says where was looked and what to set, and is gpu.ErrDriverNotLoaded.
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
		return DriverRoot{}, missError(candidates, explicit != "")
	}
	return f.fitting(found), nil
}

// driverAt returns the installation at the host's path, false where there is no library in it.
func (f *FS) driverAt(hostPath string) (DriverRoot, bool) {
	seen, err := f.resolve(hostPath)
	if err != nil {
		return DriverRoot{}, false
	}
	for _, dir := range libraryDirs {
		// A driver root is a root of its own: its absolute links mean files inside it.
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
			Library: library, LibraryID: id, Version: libraryVersion(library),
		}, true
	}
	return DriverRoot{}, false
}

// devRoot tells whose dev/ has the device nodes of the driver at hostPath.
func (f *FS) devRoot(hostPath string) string {
	if _, err := f.CharDevice(filepath.Join(hostPath, "dev/nvidiactl")); err == nil {
		return hostPath
	}
	return "/"
}

// fitting picks the installation whose library has the version of the loaded kernel module: files of an older
// installation may lie beside the one in use.
func (f *FS) fitting(found []DriverRoot) DriverRoot {
	loaded := f.KernelModule()
	for _, root := range found {
		if loaded != "" && root.Version == loaded {
			return root
		}
	}
	return found[0]
}

// moduleVersion finds the version in lines such as
// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build".
var moduleVersion = regexp.MustCompile(`(?m)^NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s`)

// KernelModule returns the version of the loaded NVIDIA kernel module, empty where none is loaded.
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

// moduleDir is where the kernel shows the module while it is loaded.
const moduleDir = "/sys/module/nvidia"

// DriverLoad identifies the present load of the NVIDIA kernel module: it is another one after each load in this boot. Empty where no
// module is seen, which says nothing.
func (f *FS) DriverLoad() string {
	seen, err := f.resolve(moduleDir)
	if err != nil {
		return ""
	}
	var stat unix.Stat_t
	if err := unix.Stat(seen, &stat); err != nil {
		return ""
	}
	// sysfs numbers its directories as they come, and uses no number twice. Its times are not those of the load.
	return strconv.FormatUint(stat.Ino, 10)
}

// libraryVersion takes the version from a file name such as libnvidia-ml.so.580.95.05.
func libraryVersion(library string) string {
	version := strings.TrimPrefix(filepath.Base(library), "libnvidia-ml.so.")
	if !strings.Contains(version, ".") || version == filepath.Base(library) {
		return ""
	}
	return version
}

// fileID identifies the regular, non-empty file at path, which is as this process sees it; false for anything else. An
// installer that is at work leaves empty files.
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

// missError says where was looked for the library and what to do.
func missError(candidates []string, explicit bool) error {
	dirs := make([]string, 0, len(libraryDirs))
	for _, dir := range libraryDirs {
		dirs = append(dirs, strings.TrimPrefix(dir, "/"))
	}
	dirs[len(dirs)-1] = "its top"
	advice := "install the NVIDIA driver on this node, or name its directory with --driver-root (chart value nvidiaDriverRoot)"
	if explicit {
		advice = "install the NVIDIA driver there, or correct --driver-root (chart value nvidiaDriverRoot); empty detects it"
	}
	return fmt.Errorf("looking for %s below %s (in %s): %w; %s",
		libraryName, strings.Join(candidates, ", "), strings.Join(dirs, ", "), gpu.ErrDriverNotLoaded, advice)
}
