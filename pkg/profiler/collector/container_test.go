package collector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/session"
	"github.com/prism-gpu/prism/pkg/profiler/tool"
)

// The arguments with which the test's program is a collector in its container, or records once without GPUs.
const (
	collectCommand = "collect"
	recordCommand  = "record"
)

func TestMain(m *testing.M) {
	commands := map[string]func([]string) error{
		tool.ContainCommand: tool.Contain, HoldCommand: func([]string) error { return Hold(os.Stdin) }, collectCommand: collect, recordCommand: record,
	}
	if len(os.Args) > 1 && commands[os.Args[1]] != nil {
		if err := commands[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// The files of a collector's container.
const (
	work     = "/run/prism"
	programs = work + "/programs"
)

// enter makes this process see the files of a container: PROGRAMS.
func enter(from string) error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	return errors.Join(err, unix.Mount("tmpfs", "/run", "tmpfs", 0, ""), os.MkdirAll(programs, 0o755), unix.Mount(from, programs, "", unix.MS_BIND, ""))
}

// collect runs a collector: PROGRAMS IMAGE VERSION DIR.
func collect(args []string) error {
	if err := enter(args[0]); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	c := Collector{
		Source: tool.Source{Version: args[2], Path: args[1]}, Self: programs + "/prism-tool", Programs: programs, Dir: args[3], Work: work,
	}
	return c.Run(ctx)
}

// send sends the next command to the session of a claim.
func send(claim string, sent *int, verb v1alpha1.SessionVerb) error {
	*sent++
	folders, err := filepath.Glob(filepath.Join(claim, counters.InboxDir, "w*"))
	if err != nil || len(folders) != 1 {
		return fmt.Errorf("there are %d sessions: %w", len(folders), err)
	}
	raw, err := session.Control{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", *sent), Verb: verb}.Encode()
	path := filepath.Join(claim, counters.PlanDir, session.ControlFolder, filepath.Base(folders[0]))
	return errors.Join(err, os.WriteFile(path+".new", raw, 0o600), os.Rename(path+".new", path))
}

var built struct {
	once sync.Once
	dir  string
	err  error
}

// programsDir returns a directory with prism-run, and the test's program as prism-tool.
func programsDir(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for namespaces")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc, to build prism-run")
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "collector-"); built.err != nil {
			return
		}
		if output, err := exec.Command("../native/build.sh", built.dir).CombinedOutput(); err != nil {
			built.err = fmt.Errorf("building: %w: %s", err, output)
			return
		}
		built.err = copyProgram(os.Args[0], filepath.Join(built.dir, "prism-tool"))
	})
	require.NoError(t, built.err)
	return built.dir
}

func copyProgram(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return writeProgram(to, content)
}

// writeProgram writes an executable file. A process that another test starts in the meantime could inherit it open for writing.
func writeProgram(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}

// standIn stands for nsys. The files next to it are its output and behavior: devices is its list of GPUs, fails the output with which it does
// not record, startFails the output with which it starts no recording, and with hangs, the list takes forever and locks lock.
const standIn = `#!/bin/sh
own=$(dirname "$0")
hang() { exec 9>"$own/lock"; flock 9; sleep 1000; }
case "$*" in
--version) echo "NVIDIA Nsight Systems version 1.0.0-a"; exit;;
"profile --help") printf -- '\t--gpu-metrics-device=\n\t--gpu-metrics-frequency=\n\t--gpu-metrics-set=\n\t--kill=\n'; both=1;;
"launch --help") both=1;;
"start --help") printf -- '\t--gpu-metrics-device=\n\t--gpu-metrics-frequency=\n\t--gpu-metrics-set=\n\t--sample=\n\t--cpuctxsw=\n'; exit;;
"profile --gpu-metrics-device=help") [ ! -e "$own/hangs" ] || hang; cat "$own/devices"; exit;;
"profile --gpu-metrics-set=help") printf '\t[0] [tu10x]        General\n\t[1] [ga10x]        General\n'; exit;;
esac
[ -z "$both" ] || { printf -- '\t--trace=\n\t--wait=\n\t--sample=\n\t--cpuctxsw=\n'; exit; }
echo "$*" >>"$own/commands"
command=$1
out= session=
shift
while [ $# -gt 0 ]; do
	case $1 in
	-o) out=$2; shift 2;;
	--session=* | --session-new=*) session=$TMPDIR/${1#*=}; shift;;
	--*) shift;;
	*) break;;
	esac
done
case $command in
start)
	[ ! -e "$own/startFails" ] || { cat "$own/startFails"; exit 1; }
	echo "$out" >"$session"; exit;;
stop)
	echo report >"$(cat "$session").qdstrm"
	: >"$session"
	exit;;
esac
[ ! -e "$own/fails" ] || { cat "$own/fails"; exit 1; }
ls "$own/../host-linux-x64" >"$own/importer"
[ "$command" != launch ] || : >"$session"
"$@" &
wait $!
[ "$command" != launch ] || out=$(cat "$session")
[ -z "$out" ] || echo report >"$out.qdstrm"
`

// container is the container of a collector.
type container struct {
	t          *testing.T
	dir, image string
	command    *exec.Cmd
	log        *os.File
	// exited is closed when the collector has exited, with err.
	exited chan struct{}
	err    error
}

// newContainer starts a collector with a stand-in for nsys.
func newContainer(t *testing.T) *container {
	t.Helper()
	c := unstarted(t)
	c.run("1.0")
	return c
}

func unstarted(t *testing.T) *container {
	t.Helper()
	c := &container{t: t, dir: filepath.Join(t.TempDir(), "collector"), image: t.TempDir()}
	target := filepath.Join(c.image, "target-linux-x64")
	host := filepath.Join(c.image, "host-linux-x64")
	require.NoError(t, errors.Join(os.Mkdir(target, 0o755), os.Mkdir(host, 0o755), os.WriteFile(filepath.Join(host, "QdstrmImporter"), nil, 0o755)))
	require.NoError(t, writeProgram(c.nsys("nsys"), []byte(standIn)))
	c.says("devices", free)
	return c
}

// nsys returns the path of a file next to nsys.
func (c *container) nsys(name string) string { return filepath.Join(c.image, "target-linux-x64", name) }

// says sets a file next to nsys.
func (c *container) says(name, text string) {
	c.t.Helper()
	require.NoError(c.t, errors.Join(os.WriteFile(c.nsys(".new"), []byte(text), 0o600), os.Rename(c.nsys(".new"), c.nsys(name))))
}

// run starts the collector, without a PID namespace: its processes must exit with it by themselves.
func (c *container) run(version string) {
	c.t.Helper()
	dir := programsDir(c.t)
	c.command = exec.Command(filepath.Join(dir, "prism-tool"), collectCommand, dir, c.image, version, c.dir)
	c.command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	log, err := os.CreateTemp(c.t.TempDir(), "log")
	require.NoError(c.t, err)
	c.log, c.command.Stdout, c.command.Stderr = log, log, log
	require.NoError(c.t, c.command.Start())
	c.exited = make(chan struct{})
	exited := c.exited
	command := c.command
	go func() {
		c.err = command.Wait()
		close(exited)
	}()
	c.t.Cleanup(func() {
		_ = command.Process.Kill()
		<-exited
		if c.t.Failed() {
			raw, _ := os.ReadFile(log.Name())
			c.t.Logf("collector: %s", raw)
		}
	})
}

// ends ends the collector by a signal.
func (c *container) ends(signal syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.command.Process.Signal(signal))
	<-c.exited
	if signal == syscall.SIGTERM {
		require.NoError(c.t, c.err)
	}
}

// bound ends a test whose processes hang. It decides nothing else.
const bound = 5 * time.Minute

func (c *container) until(what string, done func() bool) {
	c.t.Helper()
	require.Eventually(c.t, done, bound, 10*time.Millisecond, what)
}

// orders writes an order and its folders, as the plugin.
func (c *container) orders(o counters.Order) {
	c.t.Helper()
	claim := filepath.Join(c.dir, o.Claim)
	for _, dir := range []string{counters.InboxDir, filepath.Join(counters.PlanDir, session.ControlFolder)} {
		require.NoError(c.t, os.MkdirAll(filepath.Join(claim, dir), 0o700))
	}
	raw, err := o.Encode()
	require.NoError(c.t, err)
	path := filepath.Join(claim, counters.OrderFile)
	require.NoError(c.t, errors.Join(os.WriteFile(path+".tmp", raw, 0o600), os.Rename(path+".tmp", path)))
}

func (c *container) removes(claim string) {
	c.t.Helper()
	require.NoError(c.t, os.Remove(filepath.Join(c.dir, claim, counters.OrderFile)))
}

func (c *container) state(claim string) counters.State {
	raw, _ := os.ReadFile(filepath.Join(c.dir, claim, counters.StateFile))
	s, _ := counters.ParseState(raw)
	return s
}

func (c *container) becomes(claim string, reason counters.Reason) counters.State {
	c.t.Helper()
	c.until(fmt.Sprintf("%s is %s", claim, reason), func() bool { return c.state(claim).Reason == reason })
	return c.state(claim)
}

// inbox returns the files in the inbox that match.
func (c *container) inbox(claim, pattern string) []string {
	c.t.Helper()
	all, err := filepath.Glob(filepath.Join(c.dir, claim, counters.InboxDir, pattern))
	require.NoError(c.t, err)
	return all
}

func (c *container) reads(path string) string {
	c.t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(c.t, err)
	return string(raw)
}

// processes returns the processes of prism-run's sessions of a claim: nsys, prism-run and the process.
func (c *container) processes(claim string) (all []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(raw), "/"+claim+"/") && strings.Contains(string(raw), c.dir) {
			all = append(all, path)
		}
	}
	return all
}
