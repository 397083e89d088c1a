package pattern

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	header  = "../profiler/native/match/match.h"
	harness = "../profiler/native/match/testdata/harness.c"
)

// programs are the compiled harnesses by compiler and switches; they are removed after all tests.
var programs = struct {
	sync.Mutex
	folder string
	built  map[string]string
}{built: map[string]string{}}

func TestMain(m *testing.M) {
	code := m.Run()
	if programs.folder != "" {
		_ = os.RemoveAll(programs.folder)
	}
	os.Exit(code)
}

// build compiles the harness of the C function, once.
func build(t testing.TB, command ...string) string {
	t.Helper()
	programs.Lock()
	defer programs.Unlock()
	key := strings.Join(command, " ")
	if program, ok := programs.built[key]; ok {
		return program
	}
	if programs.folder == "" {
		folder, err := os.MkdirTemp("", "pattern")
		require.NoError(t, err)
		programs.folder = folder
	}
	program := filepath.Join(programs.folder, fmt.Sprint("harness", len(programs.built)))
	compile(t, append(command, "-o", program, harness)...)
	programs.built[key] = program
	return program
}

func compile(t testing.TB, command ...string) {
	t.Helper()
	// Only files that a test opens itself decide whether its cached result is valid.
	for _, source := range []string{harness, header} {
		_, err := os.ReadFile(source)
		require.NoError(t, err)
	}
	args := append(command[1:], "-std=gnu11", "-Wall", "-Wextra", "-Wconversion", "-Werror")
	out, err := exec.Command(command[0], args...).CombinedOutput()
	require.NoError(t, err, "%s %s\n%s", command[0], strings.Join(args, " "), out)
}

// native is a running harness: requests are sent while it answers, and the answers are compared at the end.
type native struct {
	t       testing.TB
	command *exec.Cmd
	in      io.WriteCloser
	buffer  *bufio.Writer
	out     *bytes.Buffer
	stderr  *bytes.Buffer
	wanted  []byte
	about   []string
}

// startNatives starts the harness of this machine, and of another machine that the environment names: PATTERN_ARM64_CC compiles it, and
// PATTERN_ARM64_RUN runs it.
func startNatives(t testing.TB) []*native {
	t.Helper()
	natives := []*native{start(t, build(t, "gcc", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"))}
	if compiler := os.Getenv("PATTERN_ARM64_CC"); compiler != "" {
		program := build(t, append(strings.Fields(compiler), "-O2", "-static")...)
		natives = append(natives, start(t, append(strings.Fields(os.Getenv("PATTERN_ARM64_RUN")), program)...))
	}
	return natives
}

func start(t testing.TB, command ...string) *native {
	t.Helper()
	n := &native{t: t, command: exec.Command(command[0], command[1:]...), out: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	n.command.Stdout, n.command.Stderr = n.out, n.stderr
	in, err := n.command.StdinPipe()
	require.NoError(t, err)
	n.in, n.buffer = in, bufio.NewWriter(in)
	require.NoError(t, n.command.Start())
	return n
}

// expect requests the answer for each process.
func (n *native) expect(rules Rules, processes []process, about string) {
	n.t.Helper()
	file, err := rules.Encode()
	require.NoError(n.t, err)
	n.expectFile(file, processes, about)
}

func (n *native) expectFile(file []byte, processes []process, about string) {
	b := record(file, processes)
	for _, p := range processes {
		n.wanted, n.about = append(n.wanted, answer(p.selected)), append(n.about, about)
	}
	// finish reports a harness that exited.
	_, _ = n.buffer.Write(b)
}

func answer(selected bool) byte {
	if selected {
		return '1'
	}
	return '0'
}

// record encodes the input of the harness.
func record(file []byte, processes []process) []byte {
	var b []byte
	add := func(text string) { b = append(binary.LittleEndian.AppendUint32(b, uint32(len(text))), text...) }
	add(string(file))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(processes)))
	for _, p := range processes {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(p.argv)))
		for _, argument := range p.argv {
			add(argument)
		}
		add(p.exe)
	}
	return b
}

// finish compares all answers.
func (n *native) finish() {
	n.t.Helper()
	flushed, closed := n.buffer.Flush(), n.in.Close()
	require.NoError(n.t, n.command.Wait(), n.stderr.String())
	require.NoError(n.t, flushed)
	require.NoError(n.t, closed)
	got := n.out.Bytes()
	require.Len(n.t, got, len(n.wanted))
	for i := range got {
		if n.wanted[i] == '?' {
			continue
		}
		require.Equal(n.t, string(n.wanted[i]), string(got[i]), "%v, case %d: %s", n.command.Args, i, n.about[i])
	}
}
