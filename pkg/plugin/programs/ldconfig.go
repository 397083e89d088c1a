package programs

import (
	"context"
	"path/filepath"
	"slices"

	"k8s.io/klog/v2"
)

// usualLdconfig is the path at which the hook program expects ldconfig, ldconfigs are its paths on other hosts.
const usualLdconfig = "/sbin/ldconfig"

var ldconfigs = []string{"/usr/sbin", "/usr/local/glibc/sbin", "/usr/local/glibc/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/run/current-system/sw/bin"}

// WithLdconfig returns the hook program, and the host's ldconfig if its path is not the usual one; search lists more directories to search.
// The hook that updates the linker's cache fails a container without ldconfig. So without ldconfig on the host there is no hook, and
// libraries are mounted with the names by which they are loaded.
func WithLdconfig(ctx context.Context, host Host, search []string, hook string) (program, ldconfig string) {
	candidates := []string{usualLdconfig}
	for _, dir := range slices.Concat(search, ldconfigs) {
		candidates = append(candidates, filepath.Join(dir, "ldconfig"))
	}
	switch found, ok := host.Program(candidates...); {
	case hook == "" || ok && found == usualLdconfig:
		return hook, ""
	case ok:
		return hook, found
	}
	klog.FromContext(ctx).Info("CDI specs contain no NVIDIA hooks because the host has no ldconfig. Programs find the libraries if the linker of their image "+
		"searches the host's directory, or with LD_LIBRARY_PATH; specify the directory of ldconfig with --driver-search-dirs (chart value nvidiaSearchDirs)",
		"searched", candidates)
	return "", ""
}
