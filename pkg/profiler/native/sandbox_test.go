package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/pattern"
	"github.com/prism-gpu/prism/pkg/profiler/runplan"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// asInit makes this program lay out a container and execute its first process.
const asInit = "NATIVE_TEST_INIT"

func TestMain(m *testing.M) {
	if layout := os.Getenv(asInit); layout != "" {
		fmt.Fprintln(os.Stderr, enter(layout, os.Args[1:]))
		os.Exit(99)
	}
	if pairs := os.Getenv(asTimer); pairs != "" {
		if err := timePairs(pairs); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(asTracer) != "" {
		if err := traceLibrary(); err != nil {
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

const (
	// bound ends a test whose container hangs. It decides nothing else, even on a busy machine.
	bound = 10 * time.Minute
	// unlimited is a limit of a plan that no test reaches: bound comes first.
	unlimited = time.Hour
)

var built struct {
	once sync.Once
	dir  string
	err  error
}

// programs returns the folder of the library and prism-run.
func programs(t testing.TB) string {
	t.Helper()
	if raceDetector {
		t.Skip("the race detector sees neither C programs nor nsys, and these tests are about nothing else: they run without it")
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("needs gcc, to build the library and prism-run")
	}
	if os.Getuid() != 0 {
		t.Skip("needs root, for namespaces")
	}
	built.once.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "native-"); built.err != nil {
			return
		}
		built.err = os.Chmod(built.dir, 0o755)
		if output, err := exec.Command("./build.sh", built.dir).CombinedOutput(); err != nil {
			built.err = fmt.Errorf("building: %w: %s", err, output)
		}
	})
	require.NoError(t, built.err)
	return built.dir
}

// container is a container of a claim with a profile, as a runtime would start it.
type container struct {
	Programs, Plan, Results, Work, Tool string
	// Shared is the pod's /dev/shm, if the pod contains other containers.
	Shared string
	// ReadOnly makes all file systems read-only except the results and the container's own folder. Preload is the image's own list.
	ReadOnly bool
	Preload  string
	// NoLibrary omits the library.
	NoLibrary bool
	// First is the pid of the first process in the context file; 0 stands for the real one.
	First int
	// Child keeps the test's init running, with the process as its child.
	Child bool

	attempts int // in which the tool itself failed
}

// newContainer returns a container with a plan that selects command lines with "profiled" in them. prism-run and nsys may take as long as a
// busy machine needs; tests of a limit set it.
func newContainer(t testing.TB, change func(*runplan.Plan)) *container {
	t.Helper()
	dir := t.TempDir()
	c := &container{
		Programs: programs(t), Plan: filepath.Join(dir, "plan"), Results: filepath.Join(dir, "results"), Work: filepath.Join(dir, "work"),
	}
	own, err := filepath.Abs("testdata")
	require.NoError(t, err)
	c.Tool = own
	plan := runplan.Plan{
		Claim: "uid", Namespace: "ns", ClaimName: "claim", Node: "node-a", Tool: "/run/prism/tool/target-linux-x64/nsys", File: "{PROCESS_NAME}_{POD}",
		Switches: []string{"--trace=osrt"}, Ready: unlimited, Report: unlimited, Term: unlimited,
	}
	if change != nil {
		change(&plan)
	}
	table, err := pattern.Compile("profiled", pattern.RE2)
	require.NoError(t, err)
	match, err := pattern.Rules{Include: table, Names: []string{"setpriv", "env"}}.Encode()
	require.NoError(t, err)
	run, err := plan.Encode()
	require.NoError(t, err)
	for _, path := range []string{c.Plan, c.Results, c.Work, filepath.Join(c.Plan, session.ControlFolder)} {
		require.NoError(t, os.Mkdir(path, 0o755))
	}
	require.NoError(t, errors.Join(os.Chmod(c.Results, 0o777|os.ModeSticky),
		os.WriteFile(filepath.Join(c.Plan, "match"), match, 0o644), os.WriteFile(filepath.Join(c.Plan, "run"), run, 0o644)))
	return c
}

// enter runs in this program as the first process of new namespaces: it lays out the container and executes the arguments.
func enter(layout string, args []string) error {
	var c container
	if err := json.Unmarshal([]byte(layout), &c); err != nil {
		return err
	}
	if err := c.mount(); err != nil {
		return err
	}
	environment := make([]string, 0, len(os.Environ()))
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, asInit+"=") {
			environment = append(environment, variable)
		}
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	if !c.Child {
		return syscall.Exec(path, args, environment)
	}
	command := exec.Command(path)
	command.Args, command.Env = args, environment
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = command.Run()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		return err
	}
	status, _ := command.ProcessState.Sys().(syscall.WaitStatus)
	fmt.Fprintf(os.Stdout, "status %#x\n", int(status))
	os.Exit(0)
	return nil
}

func (c container) mount() error {
	const prism = "/run/prism/"
	steps := []error{
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", "/dev/shm", "tmpfs", 0, "mode=1777"), unix.Mount("proc", "/proc", "proc", 0, ""), unix.Mount("tmpfs", "/run", "tmpfs", 0, ""),
	}
	bind := func(from, to string, flags uintptr) {
		steps = append(steps, os.MkdirAll(to, 0o755), unix.Mount(from, to, "", unix.MS_BIND, ""),
			unix.Mount("", to, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV|flags, ""))
	}
	bind(c.Programs, prism+"programs", unix.MS_RDONLY)
	bind(c.Tool, prism+"tool/target-linux-x64", unix.MS_RDONLY)
	bind(c.Plan, prism+"plan", unix.MS_RDONLY)
	bind(c.Results, prism+"results", unix.MS_NOEXEC)
	bind(c.Work, "/run/work", 0)
	steps = append(steps, os.MkdirAll(prism+"container/pipes", 0o755), os.Chmod(prism+"container/pipes", 0o777|os.ModeSticky),
		os.WriteFile(prism+"container/context", fmt.Appendf(nil, "pod=pod-a\nnamespace=ns\ncontainer=main\nnode=node-a\nlocalInit=%d\n", c.First), 0o644))
	for i := range runplan.MaxSessions {
		steps = append(steps, os.WriteFile(fmt.Sprintf(prism+"container/slot-%d", i), nil, 0o444))
	}
	steps = append(steps, os.Symlink(prism+"programs/libprism-inject.so", prism+"container/libprism-beside-libasan.so"))
	if c.Shared != "" {
		steps = append(steps, unix.Mount(c.Shared, "/dev/shm", "", unix.MS_BIND, ""))
	}
	list := c.Preload + prism + "container/libprism-beside-libasan.so\n"
	if c.NoLibrary {
		list = c.Preload
	}
	steps = append(steps, os.MkdirAll("/run/etc/upper", 0o755), os.MkdirAll("/run/etc/work", 0o755),
		unix.Mount("overlay", "/etc", "overlay", 0, "lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work"),
		os.WriteFile("/etc/ld.so.preload", []byte(list), 0o644))
	var readOnly uintptr
	if c.ReadOnly {
		readOnly = unix.MS_RDONLY
	}
	steps = append(steps, unix.Mount("tmpfs", "/tmp", "tmpfs", readOnly, "mode=1777"))
	return errors.Join(steps...)
}

// command runs the arguments in the container.
func (c *container) command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	layout, err := json.Marshal(c)
	require.NoError(t, err)
	bounded, cancel := context.WithTimeout(t.Context(), bound)
	t.Cleanup(cancel)
	command := exec.CommandContext(bounded, os.Args[0], args...)
	command.Env = append(os.Environ(), asInit+"="+string(layout))
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC}
	return command
}

// run runs the arguments and returns the exit code and the output.
func (c *container) run(t testing.TB, args ...string) (code int, output string) {
	t.Helper()
	for {
		command := c.command(t, args...)
		raw, err := command.CombinedOutput()
		var failed *exec.ExitError
		if !errors.As(err, &failed) {
			require.NoError(t, err)
		}
		if !c.again(t) {
			return command.ProcessState.ExitCode(), string(raw)
		}
	}
}

// again reports whether a session must be tried again, and removes its leftovers. On a busy machine nsys 2022.4.2 sometimes opens a
// semaphore that its other process has not created yet, and exits: the process then runs unprofiled, as intended, but the test proves
// nothing.
func (c *container) again(t testing.TB) bool {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(c.Results, "s*", "nsys.log"))
	require.NoError(t, err)
	for _, log := range logs {
		raw, err := os.ReadFile(log)
		require.NoError(t, err)
		if c.attempts < 4 && strings.Contains(string(raw), "sem_open") {
			t.Logf("nsys failed by itself:\n%s", raw)
			c.attempts++
			require.NoError(t, os.RemoveAll(filepath.Dir(log)))
			return true
		}
	}
	return false
}

// script returns the command of a shell script with "profiled" in its name.
func (c *container) script(t testing.TB, text string) []string {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(c.Work, "profiled.sh"), []byte(text), 0o755))
	return []string{"sh", "/run/work/profiled.sh"}
}

// outer returns the command of a shell script that does not match.
func (c *container) outer(t testing.TB, text string) []string {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(c.Work, "outer.sh"), []byte(text), 0o755))
	return []string{"sh", "/run/work/outer.sh"}
}

// note is the note of a session; values of a repeated key are joined with a space.
type note map[string]string

// notes returns the notes of all sessions.
func (c *container) notes(t testing.TB) (notes []note) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(c.Results, "s*", "note"))
	require.NoError(t, err)
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		n := note{"name": filepath.Base(filepath.Dir(path))}
		for line := range strings.Lines(string(raw)) {
			key, value, found := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			require.True(t, found, line)
			n[key] = strings.TrimPrefix(n[key]+" "+value, " ")
		}
		notes = append(notes, n)
	}
	return notes
}

// one returns the note of the only session.
func (c *container) one(t testing.TB) note {
	t.Helper()
	notes := c.notes(t)
	require.Len(t, notes, 1)
	return notes[0]
}

// until waits for a condition.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(bound); !is(); <-tick.C {
		require.False(t, time.Now().After(deadline), what)
	}
}
