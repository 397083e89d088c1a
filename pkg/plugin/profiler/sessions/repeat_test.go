package sessions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

// TestCommand_SameID_SameAnswer: it is carried out once, also if the client asks again while the first request is in progress, or after a
// restart of the plugin.
func TestCommand_SameID_SameAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.starts(uid, folder)
	var requests sync.WaitGroup
	for range 4 {
		requests.Go(func() {
			a, err := w.Command(t.Context(), start(1))
			assert.NoError(t, err)
			assert.Equal(t, []string{id}, a.Names)
		})
	}
	requests.Wait()
	p.is(session.Recording)
	w.pass(time.Hour)
	w.accepts(start(1), id)
	assert.Equal(t, refusedRecording, w.refuses(start(2)))
	p.is(session.Waiting)
	w.pass(scanEvery)
	assert.Equal(t, refusedRecording, w.refuses(start(2)), "the same answer, although it would be accepted now")

	w.accepts(start(3), id)
	w.restart(disk.OS{})
	w.accepts(start(3), id) // its file is found
	p.says("id="+uuid(3)+" outcome=Recorded", "id="+uuid(4)+" outcome=NotRecording")
	w.pass(scanEvery)
	w.Sweep()
	assert.NoFileExists(t, w.control(uid, folder))
	w.restart(disk.OS{})
	w.accepts(start(3), id) // its answer is found
	assert.NoFileExists(t, w.control(uid, folder))
}

// TestCommand_SameIDOfAnotherNamespace_CarriedOut: an id of another namespace is another command.
func TestCommand_SameIDOfAnotherNamespace_CarriedOut(t *testing.T) {
	t.Parallel()
	other := claimed
	other.UID, other.Namespace = "0b1c2d3e-2", "others"
	w := newWorld(t, claimed, other)
	w.starts(uid, folder)
	w.starts(other.UID, folder)
	w.accepts(start(1), id)
	c := start(1)
	c.Namespace = "others"
	w.accepts(c, id)
	_, ok := w.reads(other.UID, folder)
	assert.True(t, ok)
}

// TestCommand_KilledAnywhere_DoneByTheNextRequest: the client gets no answer, and asks again.
func TestCommand_KilledAnywhere_DoneByTheNextRequest(t *testing.T) {
	t.Parallel()
	points := 0
	for died := true; died; points++ {
		w := newWorld(t)
		p := w.starts(uid, folder)
		left := points
		w.restart(counting{left: &left})
		a, err := w.Command(t.Context(), start(1))
		require.NoError(t, err)
		died = left < 0
		if died {
			assert.Equal(t, []session.Refusal{{Name: id, Reason: refusedFailed}}, a.Refused)
			assert.NotEmpty(t, w.failures)
		}
		if of, ok := w.reads(uid, folder); ok {
			assert.Equal(t, uuid(1), of.ID, "never a part of a file")
		}
		w.restart(disk.OS{})
		w.accepts(start(1), id)
		w.pass(startTimeout)
		w.accepts(start(2), id)
		p.says("id=" + uuid(2) + " outcome=Recorded")
		w.pass(scanEvery)
		w.Sweep()
		there, err := os.ReadDir(w.control(uid, ""))
		require.NoError(t, err)
		assert.Empty(t, there, "fault point %d", points)
	}
	assert.Equal(t, 3, points, "a command writes, and renames")
}

// TestCommand_WriteFailed_RetriedWithTheSameID: an answer that is only about the node's disk is not kept.
func TestCommand_WriteFailed_RetriedWithTheSameID(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.starts(uid, folder)
	left := 0
	w.restart(counting{left: &left})
	assert.Equal(t, refusedFailed, w.refuses(start(1)))
	left = 100
	w.accepts(start(1), id)
}

// unreadable is a disk that does not list commands.
type unreadable struct {
	disk.OS
	fails *bool
}

func (d unreadable) List(dir string) ([]string, error) {
	if *d.fails {
		return nil, errKilled
	}
	return d.OS.List(dir)
}

// TestCommand_CommandsUnreadable_Refused: an open command must not be replaced because it is unknown.
func TestCommand_CommandsUnreadable_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.starts(uid, folder)
	w.accepts(start(1), id)
	fails := true
	w.restart(unreadable{fails: &fails})
	assert.Equal(t, refusedFailed, w.refuses(start(2)))
	fails = false
	assert.Equal(t, refusedOpen, w.refuses(start(2)))
}

func TestCommand_Canceled_NotKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.starts(uid, folder)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err := w.Command(ctx, start(1))
	require.ErrorIs(t, err, context.Canceled)
	_, ok := w.reads(uid, folder)
	assert.False(t, ok)
	w.accepts(start(1), id)
}

// TestAnswered_Bounds_OldestDropped: a namespace cannot displace all answers of others at once, and none can use more memory.
func TestAnswered_Bounds_OldestDropped(t *testing.T) {
	t.Parallel()
	var a answered
	first := a.of("a", uuid(0))
	for i := range maxNamespaceAnswers {
		assert.Same(t, first, a.of("a", uuid(0)), "it was just requested")
		a.of("a", uuid(i))
	}
	for i := range maxNamespaceAnswers {
		a.of("b", uuid(i))
	}
	assert.Same(t, first, a.of("a", uuid(0)), "of another namespace")
	for i := range maxNamespaceAnswers {
		a.of("a", uuid(i+1))
	}
	assert.NotSame(t, first, a.of("a", uuid(0)))
	for i := range 2 * maxAnswers {
		a.of(fmt.Sprint(i), uuid(i))
		require.LessOrEqual(t, len(a.kept), maxAnswers)
	}
	require.Len(t, a.kept, maxAnswers)
}

// TestCommand_Parallel_OneIsAccepted: of several commands for a session exactly one is passed on.
func TestCommand_Parallel_OneIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.starts(uid, folder)
	var requests sync.WaitGroup
	accepted := make(chan string, 16)
	for i := range cap(accepted) {
		requests.Go(func() {
			a, err := w.Command(t.Context(), start(i))
			assert.NoError(t, errors.Join(err))
			for range a.Names {
				accepted <- uuid(i)
			}
			w.List("", "")
		})
	}
	requests.Wait()
	close(accepted)
	got, _ := w.reads(uid, folder)
	assert.Len(t, accepted, 1)
	assert.Equal(t, got.ID, <-accepted)
}
