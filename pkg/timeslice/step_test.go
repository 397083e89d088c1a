package timeslice

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const (
	uuidA = gpu.UUID("GPU-aaaaaaaa-0000-4000-8000-000000000000")
	uuidB = gpu.UUID("GPU-bbbbbbbb-0000-4000-8000-000000000000")
)

// tool is a driver's tool that remembers and can refuse.
type tool struct {
	// mu guards what tests set and what is read and counted in the background.
	mu      sync.Mutex
	inForce map[gpu.UUID]gpu.Interval
	runs    int
	// refusal is what every run ends with; applied tells that the run has set the interval all the same.
	refusal error
	applied bool
}

func (f *tool) SetTimeslice(ctx context.Context, id gpu.UUID, interval gpu.Interval) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	f.runs++
	if f.refusal == nil || f.applied {
		f.inForce[id] = interval
	}
	return f.refusal
}

// bench is a machine with a tool and a directory.
type bench struct {
	*tool
	dir string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return &bench{tool: &tool{inForce: map[gpu.UUID]gpu.Interval{}}, dir: t.TempDir()}
}

// notes are those of a process in that boot.
func (b *bench) notes(boot string) *Notes {
	return NewNotes(disk.OS{}, b.dir, boot)
}

func (b *bench) step() Step {
	return Step{Tool: b.tool, Notes: b.notes("boot-1")}
}

// files are the notes that there are.
func (b *bench) files(t *testing.T) []string {
	t.Helper()
	names, err := disk.OS{}.List(filepath.Join(b.dir, "intervals"))
	require.NoError(t, err)
	return names
}

func asks(id gpu.UUID, interval string) checkpoint.Step {
	return checkpoint.Step{Kind: claim.StepInterval, Target: id, Args: []byte(`{"interval":"` + interval + `"}`)}
}

func TestAClaimsInterval(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.step().Do(t.Context(), asks(uuidA, "Short"))
	require.NoError(t, err)
	assert.Equal(t, map[gpu.UUID]gpu.Interval{uuidA: "Short"}, b.inForce)
	assert.Equal(t, 1, b.runs)

	found, err := b.step().Find(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []checkpoint.Step{{Kind: claim.StepInterval, Target: uuidA}}, found)
	assert.True(t, Step{}.Names(asks(uuidA, "Short"), found[0]))

	require.NoError(t, b.step().Undo(t.Context(), asks(uuidA, "Short")))
	assert.Equal(t, map[gpu.UUID]gpu.Interval{uuidA: "Default"}, b.inForce)
	assert.Equal(t, 2, b.runs)
	assert.Empty(t, b.files(t))

	require.NoError(t, b.step().Undo(t.Context(), asks(uuidA, "Short")), "undone already")
	assert.Equal(t, 2, b.runs)
	found, err = b.step().Find(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
}

// TestAnIntervalWithoutRecord is found by its note alone and undone without arguments.
func TestAnIntervalWithoutRecord(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.step().Do(t.Context(), asks(uuidB, "Long"))
	require.NoError(t, err)
	found, err := b.step().Find(t.Context())
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, b.step().Undo(t.Context(), found[0]))
	assert.Equal(t, map[gpu.UUID]gpu.Interval{uuidB: "Default"}, b.inForce)
}

func TestAfterARebootNothingWasSet(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.step().Do(t.Context(), asks(uuidA, "Long"))
	require.NoError(t, err)
	later := Step{Tool: b.tool, Notes: b.notes("boot-2")}
	found, err := later.Find(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
	require.NoError(t, later.Undo(t.Context(), asks(uuidA, "Long")))
	assert.Equal(t, 1, b.runs)
}

func TestHalfANoteIsFromBeforeAPowerCut(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	step := b.step()
	require.NoError(t, os.Mkdir(filepath.Join(b.dir, "intervals"), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "intervals", string(uuidA)+".claim.json"), []byte(`{"bootID":"boot-1","cl`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(b.dir, "intervals", string(uuidB)+".claim.json.tmp"), nil, 0o600))
	require.NoError(t, step.Undo(t.Context(), asks(uuidA, "Long")))
	found, err := step.Find(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
}

// TestRefusedRuns: what the tool has refused needs no undoing; what may have been done does.
func TestRefusedRuns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refusal error
		runs    int // of Undo
	}{
		"not supported": {&gpu.UnsupportedError{Feature: "it"}, 0},
		"no driver":     {gpu.ErrDriverNotLoaded, 0},
		"GPU lost":      {gpu.ErrLost, 0},
		"no answer":     {gpu.ErrTimeout, 1},
		"killed":        {errors.New("signal: killed"), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.refusal, b.applied = c.refusal, c.runs > 0
			_, err := b.step().Do(t.Context(), asks(uuidA, "Long"))
			require.ErrorIs(t, err, c.refusal)
			b.refusal, b.runs = nil, 0
			require.NoError(t, b.step().Undo(t.Context(), asks(uuidA, "Long")))
			assert.Equal(t, c.runs, b.runs)
			assert.NotEqual(t, gpu.IntervalLong, b.inForce[uuidA])
			assert.Empty(t, b.files(t))
		})
	}
}

func TestUndoingThatFailsIsRepeated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.step().Do(t.Context(), asks(uuidA, "Long"))
	require.NoError(t, err)
	b.refusal = gpu.ErrLost
	require.ErrorIs(t, b.step().Undo(t.Context(), asks(uuidA, "Long")), gpu.ErrLost)
	b.refusal = nil
	require.NoError(t, b.step().Undo(t.Context(), asks(uuidA, "Long")))
	assert.Equal(t, gpu.IntervalDefault, b.inForce[uuidA])
}

// fullDisk takes no files.
type fullDisk struct{ disk.OS }

func (fullDisk) Write(string, []byte, fs.FileMode, bool) error { return syscall.ENOSPC }

// TestOnAFullDisk nothing is set that cannot be noted, and a claim ends all the same, whatever the node wants.
func TestOnAFullDisk(t *testing.T) {
	t.Parallel()
	k := newKeeping(t)
	k.wanted = intervals("Long", "Default")
	k.keeper("boot-1").Keep(t.Context())
	_, err := k.step().Do(t.Context(), asks(uuidA, "Short"))
	require.NoError(t, err)
	full := Step{Tool: k.tool, Notes: NewNotes(fullDisk{}, k.dir, "boot-1")}
	require.NoError(t, full.Undo(t.Context(), asks(uuidA, "Short")))
	assert.Equal(t, gpu.IntervalLong, k.inForce[uuidA])
	_, err = full.Do(t.Context(), asks(uuidB, "Short"))
	require.ErrorIs(t, err, syscall.ENOSPC)
	assert.NotContains(t, k.inForce, uuidB, "what cannot be noted is not set")

	_, err = k.step().Do(t.Context(), asks(uuidB, "Short"))
	require.NoError(t, err)
	require.NoError(t, full.Undo(t.Context(), asks(uuidB, "Short")))
	assert.Equal(t, intervals("Long", "Default"), k.inForce)
	found, err := k.step().Find(t.Context())
	require.NoError(t, err)
	assert.Empty(t, found)
}

func TestArgumentsThatNobodyWrote(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, err := b.step().Do(t.Context(), checkpoint.Step{Target: uuidA, Args: []byte("{")})
	require.ErrorContains(t, err, "reading the arguments of step interval")
	assert.Zero(t, b.runs)
}
