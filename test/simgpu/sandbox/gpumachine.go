package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// outerNamespace is the environment variable with the mount namespace of the parent process.
const outerNamespace = "SIMGPU_TEST_OUTER_NAMESPACE"

// machineNodes are the device nodes of a host with two GPUs, without /dev/nvidia-caps.
var machineNodes = map[string]uint64{
	"nvidiactl": unix.Mkdev(195, 255), "nvidia-modeset": unix.Mkdev(195, 254), "nvidia0": unix.Mkdev(195, 0), "nvidia1": unix.Mkdev(195, 1),
	"nvidia-uvm": unix.Mkdev(510, 0), "nvidia-uvm-tools": unix.Mkdev(510, 1),
}

// OnGPUMachine runs a package's tests as on a host with its own GPUs and driver, so that tests fail if a sandbox uses the host's device
// nodes. It runs them in a mount namespace whose /dev has such nodes in addition, and returns the exit code. If the namespace cannot be
// created, the tests run without. Call it in TestMain.
func OnGPUMachine(m *testing.M) int {
	if outer := os.Getenv(outerNamespace); outer != "" {
		if err := errors.Join(os.Unsetenv(outerNamespace), makeGPUMachine(outer)); err != nil {
			fmt.Fprintln(os.Stderr, "sandbox:", err)
			return 1
		}
		isGPUMachine = true
		return m.Run()
	}
	code, err := rerunInNamespace()
	if errors.Is(err, unix.EPERM) || errors.Is(err, errors.ErrUnsupported) {
		return m.Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		return 1
	}
	return code
}

var isGPUMachine bool

// IsGPUMachine reports whether the tests run as on a host with GPUs.
func IsGPUMachine() bool { return isGPUMachine }

// rerunInNamespace runs this test binary once more, in its own mount namespace.
func rerunInNamespace() (int, error) {
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return 0, errors.ErrUnsupported
	}
	outer, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return 0, fmt.Errorf("reading the mount namespace of the tests: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("finding the tests: %w", err)
	}
	runtime.LockOSThread() // the parent-death signal is sent when the thread that started the child exits
	command := exec.Command(self, os.Args[1:]...)
	command.Env = append(os.Environ(), outerNamespace+"="+outer)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return 0, fmt.Errorf("running the tests in a mount namespace: %w", err)
	}
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT) // sent by go test on a timeout
	go func() {
		for s := range quit {
			_ = command.Process.Signal(s)
		}
	}()
	err = command.Wait()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return 0, fmt.Errorf("running the tests in a mount namespace: %w", err)
	}
	if code := command.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 1, nil
}

// makeGPUMachine mounts a /dev in this namespace that also contains the device nodes of GPUs.
func makeGPUMachine(outer string) error {
	mine, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return fmt.Errorf("covering /dev: %w", err)
	}
	if mine == outer {
		return fmt.Errorf("covering /dev: the tests are still in mount namespace %s", outer)
	}
	dev, err := os.MkdirTemp("", "simgpu-dev-")
	if err != nil {
		return fmt.Errorf("covering /dev: %w", err)
	}
	defer os.Remove(dev)
	if err := unix.Mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return fmt.Errorf("covering /dev: mounting a tmpfs: %w", err)
	}
	if err := copyDev(dev); err != nil {
		return fmt.Errorf("covering /dev: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dev, "nvidia-caps"), 0o755); err != nil {
		return fmt.Errorf("covering /dev: %w", err)
	}
	for name, number := range machineNodes {
		if err := unix.Mknod(filepath.Join(dev, name), unix.S_IFCHR|0o666, int(number)); err != nil {
			return fmt.Errorf("covering /dev: making %s: %w", name, err)
		}
	}
	for minor := range 3 {
		name := filepath.Join(dev, "nvidia-caps", fmt.Sprintf("nvidia-cap%d", minor))
		if err := unix.Mknod(name, unix.S_IFCHR|0o444, int(unix.Mkdev(236, uint32(minor)))); err != nil {
			return fmt.Errorf("covering /dev: making %s: %w", name, err)
		}
	}
	if err := unix.Mount(dev, "/dev", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("covering /dev: %w", err)
	}
	return nil
}

// copyDev reproduces /dev in another directory, without the nodes of GPUs.
func copyDev(into string) error {
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "nvidia") {
			continue
		}
		if err := copyDevEntry(filepath.Join("/dev", entry.Name()), filepath.Join(into, entry.Name())); err != nil {
			return fmt.Errorf("showing /dev/%s: %w", entry.Name(), err)
		}
	}
	return nil
}

func copyDevEntry(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR, unix.S_IFBLK:
		if err := unix.Mknod(to, st.Mode, int(st.Rdev)); err != nil {
			return err
		}
		return os.Chmod(to, os.FileMode(st.Mode&0o777)) // mknod applied the umask
	case unix.S_IFLNK:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case unix.S_IFDIR:
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
	}
	return nil // sockets are not used by tests
}
