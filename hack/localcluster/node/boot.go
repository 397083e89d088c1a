//go:build linux

package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/hack/localcluster/supervise"
)

// Boot turns this process's namespaces into the machine and runs the boot commands. It must be called by pid 1 of new mount, pid, net, uts
// and ipc namespaces; it refuses to run anywhere else, because it mounts over the machine's own folders.
func (m Machine) Boot(reaper *supervise.Reaper) error {
	if err := m.checkPrivate(); err != nil {
		return err
	}
	steps := []struct {
		what string
		do   func() error
	}{
		{"separating the mounts", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"naming the machine", func() error { return unix.Sethostname([]byte(m.Name)) }},
		{"mounting /proc", func() error { return unix.Mount("proc", "/proc", "proc", 0, "") }},
		{"laying overlays over the host's folders", m.mountOverlays},
		{"mounting the node's own folders", m.mountOwn},
		{"mounting what pods in user namespaces need", m.mountUnmasked},
		{"making /dev", m.makeDev},
		{"laying out the hardware tables", m.mountTables},
		{"sharing the mounts", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "") }},
		{"forwarding between pods", func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) }},
	}
	for _, step := range steps {
		if err := step.do(); err != nil {
			return fmt.Errorf("booting node %s: %s: %w", m.Name, step.what, err)
		}
	}
	return m.runBootCommands(reaper)
}

// checkPrivate compares this mount namespace with the namespace of the process that requested the boot.
func (m Machine) checkPrivate() error {
	if os.Getpid() != 1 {
		return errors.New("this is not the first process of a node")
	}
	own, err := MountNamespace()
	if err != nil {
		return err
	}
	if m.HostMounts == "" || own == m.HostMounts {
		return errors.New("this process shares the machine's mounts")
	}
	return nil
}

// MountNamespace returns the name of this process's mount namespace.
func MountNamespace() (string, error) {
	name, err := os.Readlink("/proc/thread-self/ns/mnt")
	if err != nil {
		return "", fmt.Errorf("reading this mount namespace: %w", err)
	}
	return name, nil
}

// mountOverlays keeps writes of the node out of the host's folders.
func (m Machine) mountOverlays() error {
	for _, dir := range []string{"/etc", "/opt", "/var/lib", "/var/log", "/usr"} {
		upper := filepath.Join(m.Dir, "overlay", strings.ReplaceAll(dir[1:], "/", "-"))
		for _, part := range []string{"upper", "work"} {
			if err := os.MkdirAll(filepath.Join(upper, part), 0o755); err != nil {
				return err
			}
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", dir, upper, upper)
		if err := unix.Mount("overlay", dir, "overlay", 0, options); err != nil {
			return fmt.Errorf("overlay over %s: %w", dir, err)
		}
	}
	return nil
}

// mountOwn binds the folders that must be on a real file system, hides the host's content of them, and recreates /run.
func (m Machine) mountOwn() error {
	binds := [][2]string{
		{"kubelet", "/var/lib/kubelet"},
		{"containerd", "/var/lib/containerd"},
		// Pods in user namespaces mount parts of it, and overlays cannot be id-mapped.
		{"prism", "/var/lib/gpu.prism.dev"},
		{"etc-cdi", "/etc/cdi"},
		{networkDir, "/etc/cni/net.d"},
		{"pod-logs", "/var/log/pods"},
		{"container-logs", "/var/log/containers"},
	}
	for _, bind := range binds {
		from := filepath.Join(m.Dir, bind[0])
		if err := mkdirs(from, bind[1]); err != nil {
			return err
		}
		if err := unix.Mount(from, bind[1], "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("binding %s: %w", bind[1], err)
		}
	}
	if err := unix.Mount("run", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("tmpfs on /run: %w", err)
	}
	if err := mkdirs("/run/cdi", "/run/lock", "/opt/cni/bin"); err != nil {
		return err
	}
	if err := linkAll(m.CNI, "/opt/cni/bin"); err != nil {
		return err
	}
	return writeIdentity()
}

func linkAll(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := replace(filepath.Join(to, entry.Name())); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// writeIdentity writes a separate machine id, and a resolver that refuses at once: the cluster has no name service.
func writeIdentity() error {
	if err := replace("/etc/resolv.conf"); err != nil {
		return err
	}
	if err := os.WriteFile("/etc/resolv.conf", []byte("options timeout:1 attempts:1\n"), 0o644); err != nil {
		return err
	}
	const idFile, marker = "/etc/machine-id", "/etc/.localcluster-machine-id"
	if _, err := os.Stat(marker); err == nil {
		return nil
	}
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	if err := replace(idFile); err != nil {
		return err
	}
	if err := os.WriteFile(idFile, fmt.Appendf(nil, "%x\n", id), 0o444); err != nil {
		return err
	}
	return os.WriteFile(marker, nil, 0o444)
}

// replace removes the file so that a link at its path is not followed.
func replace(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func mkdirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// runBootCommands runs the commands one after the other; the first failure ends the boot. Their background processes keep running.
func (m Machine) runBootCommands(reaper *supervise.Reaper) error {
	for _, command := range m.BootCommands {
		output, err := os.CreateTemp(m.Dir, "boot-output-*")
		if err != nil {
			return fmt.Errorf("running the boot command %q: %w", command, err)
		}
		err = m.runBootCommand(reaper, command, output)
		text, _ := os.ReadFile(output.Name())
		os.Stdout.Write(text)
		output.Close()
		os.Remove(output.Name())
		if err != nil {
			return fmt.Errorf("booting node %s: boot command %q %w; its output:\n%s", m.Name, command, err, strings.TrimSpace(string(text)))
		}
	}
	return nil
}

func (m Machine) runBootCommand(reaper *supervise.Reaper, command string, output *os.File) error {
	fmt.Fprintf(os.Stdout, "boot command: %s\n", command)
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = m.Environment(), "/", output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	child, err := reaper.Start(cmd)
	if err != nil {
		return fmt.Errorf("does not start: %w", err)
	}
	status := <-child.Exit
	if status.Signaled() {
		return fmt.Errorf("was killed by signal %d", status.Signal())
	}
	if status.ExitStatus() != 0 {
		return fmt.Errorf("ended with exit status %d", status.ExitStatus())
	}
	return nil
}
