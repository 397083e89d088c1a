//go:build linux

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/hack/localcluster/node"
	"github.com/prism-gpu/prism/hack/localcluster/supervise"
)

// Spec configures the first process of a namespace. It is a file, so a reboot needs no other input.
type Spec struct {
	// Node is set for a node and nil for the control plane.
	Node     *node.Machine       `json:"node,omitempty"`
	Services []supervise.Service `json:"services"`
	Control  string              `json:"control"`
	// Log receives the first process's own output.
	Log string `json:"log"`
	// Forward is the target of connections to the inherited listener; only the control plane uses it.
	Forward string `json:"forward,omitempty"`
}

// Files that the first process inherits.
const (
	reportFile   = 3 // one JSON object: the result of the start
	listenerFile = 4 // the host's loopback port, in the control plane
)

type outcome struct {
	Error string `json:"error,omitempty"`
}

// spawn starts the first process of new namespaces in the named network namespace, waits until it accepts orders, and records its pid.
func spawn(path, namespace string, spec Spec, listener *os.File) error {
	if err := writeJSON(path, spec); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(spec.Log), 0o755); err != nil {
		return fmt.Errorf("opening %s: %w", spec.Log, err)
	}
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("opening %s: %w", spec.Log, err)
	}
	defer log.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer read.Close()
	cmd := exec.Command("/proc/self/exe", InitCommand, path)
	cmd.Args[0] = "localcluster"
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = []string{"GOGC=50"}, "/", log, log
	cmd.ExtraFiles = []*os.File{write}
	if listener != nil {
		cmd.ExtraFiles = append(cmd.ExtraFiles, listener)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	err = startIn(namespace, cmd)
	write.Close()
	if err != nil {
		return err
	}
	pid := cmd.Process.Pid
	go cmd.Wait() //nolint:errcheck // only to collect it when it ends before this process
	if err := remember(path, pid); err != nil {
		return err
	}
	return awaitOutcome(read, spec.Log)
}

func awaitOutcome(read io.Reader, log string) error {
	var result outcome
	if err := json.NewDecoder(read).Decode(&result); err != nil {
		return fmt.Errorf("the first process exited before it was ready: see %s", log)
	}
	if result.Error != "" {
		return errors.New(result.Error)
	}
	return nil
}

// startIn starts the command in a network namespace: a child inherits the namespace of the thread that starts it.
func startIn(namespace string, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return fmt.Errorf("opening this network namespace: %w", err)
	}
	defer own.Close()
	target, err := os.Open(filepath.Join(namespaceFolder, namespace))
	if err != nil {
		return fmt.Errorf("opening the network namespace %s: %w", namespace, err)
	}
	defer target.Close()
	if err := unix.Setns(int(target.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering the network namespace %s: %w", namespace, err)
	}
	err = cmd.Start()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked and ends with its goroutine, so nothing else runs in the wrong namespace.
		return fmt.Errorf("leaving the network namespace %s: %w", namespace, back)
	}
	runtime.UnlockOSThread()
	if err != nil {
		return fmt.Errorf("starting the first process of %s: %w", namespace, err)
	}
	return nil
}

// Init is the main function of a first process: it prepares its namespaces, reports that, and then runs until it is killed.
func Init(path string) error {
	started := os.NewFile(reportFile, "report")
	serve, err := begin(path)
	result := outcome{}
	if err != nil {
		result.Error = err.Error()
	}
	if err := json.NewEncoder(started).Encode(result); err != nil {
		return fmt.Errorf("reporting the start: %w", err)
	}
	started.Close()
	if err != nil {
		return err
	}
	return serve()
}

func begin(path string) (serve func() error, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	var spec Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	syscall.CloseOnExec(reportFile)
	reaper := supervise.NewReaper()
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	if spec.Node != nil {
		env = spec.Node.Environment()
		if err := spec.Node.Boot(reaper); err != nil {
			return nil, err
		}
	}
	if spec.Forward != "" {
		// The setting belongs to this network namespace, through which pods of different nodes communicate.
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
			return nil, fmt.Errorf("forwarding between nodes: %w", err)
		}
		if err := forward(os.NewFile(listenerFile, "listener"), spec.Forward); err != nil {
			return nil, err
		}
	}
	control, err := supervise.Listen(spec.Control)
	if err != nil {
		return nil, err
	}
	return func() error { return supervise.New(spec.Services, env, reaper).Serve(control) }, nil
}

// forward forwards each connection of the listener, which belongs to the host's network, to an address of this namespace.
func forward(file *os.File, to string) error {
	listener, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("taking over the host's port: %w", err)
	}
	file.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				fmt.Fprintln(os.Stderr, "accepting a connection:", err)
				return
			}
			go relay(conn.(*net.TCPConn), to)
		}
	}()
	return nil
}

func relay(near *net.TCPConn, to string) {
	defer near.Close()
	conn, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	far := conn.(*net.TCPConn)
	defer far.Close()
	done := make(chan struct{})
	go func() {
		pump(far, near)
		close(done)
	}()
	pump(near, far)
	<-done
}

func pump(to, from *net.TCPConn) {
	_, _ = io.Copy(to, from)
	_ = to.CloseWrite()
}
