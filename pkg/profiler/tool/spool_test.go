package tool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSpool_UnfinishedFiles_RemovedAtStart: files of this version's claims, with a name that the store does not remove while they are
// written.
func TestSpool_UnfinishedFiles_RemovedAtStart(t *testing.T) {
	t.Parallel()
	s, folder, _ := spool(t, nil, func(string) error { return nil })
	left := filepath.Join(folder, unfinishedPrefix+"a.nsys-rep")
	require.NoError(t, os.WriteFile(left, nil, 0o600))
	s.Version = "2"
	require.NoError(t, s.clean())
	assert.FileExists(t, left, "the importer of version 1 may be writing it")
	s.Version = "1"
	require.NoError(t, s.clean())
	assert.NoFileExists(t, left)
}

// put writes the index of a claim and its raw files of these sizes in bytes.
func put(t *testing.T, s Spool, namespace, claim string, files map[string]int) {
	t.Helper()
	folder := filepath.Join(s.Profiles, claim, spoolFolder)
	require.NoError(t, os.MkdirAll(folder, 0o700))
	index := fmt.Sprintf(`{"claim":{"tool":"1","namespace":%q}}`, namespace)
	require.NoError(t, os.WriteFile(filepath.Join(s.Profiles, claim, indexFile), []byte(index), 0o600))
	for id, size := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, id+rawSuffix), make([]byte, size), 0o600))
	}
}

// TestSpool_Tenants_RoundRobin: neither many files, many claims nor small files of one tenant delay another tenant by more than one file.
func TestSpool_Tenants_RoundRobin(t *testing.T) {
	t.Parallel()
	s, _, order := spool(t, nil, func(string) error { return nil })
	put(t, s, "many", "m1", map[string]int{"m1-a": 1, "m1-b": 2, "m1-c": 3})
	put(t, s, "many", "m2", map[string]int{"m2-a": 4, "m2-b": 5})
	put(t, s, "few", "f1", map[string]int{"f1-a": 100, "f1-b": 200})
	drain(t, s)
	assert.Equal(t, []string{"m1-a", "f1-a", "m2-a", "f1-b", "m1-b", "m2-b", "m1-c"}, *order)
}

// TestSpool_OneFileAtATime_NotFirstEachTime: a claim without waiting files keeps its position.
func TestSpool_OneFileAtATime_NotFirstEachTime(t *testing.T) {
	t.Parallel()
	s, _, order := spool(t, nil, func(string) error { return nil })
	for _, name := range []string{"f1", "f2"} {
		put(t, s, name, name, map[string]int{name + "-a": 100, name + "-b": 200})
	}
	for i := range 5 {
		if i != 1 {
			put(t, s, "one", "o1", map[string]int{fmt.Sprintf("o1-%d", i): 1})
		}
		next, found := s.next(t.Context())
		require.True(t, found)
		s.one(t.Context(), next)
	}
	assert.Equal(t, []string{"o1-0", "f1-a", "f2-a", "o1-2", "f1-b"}, *order)
}

// TestSpool_FilesEndTheService_OthersNext: the container restarts with a longer pause each time, and the rotation survives.
func TestSpool_FilesEndTheService_OthersNext(t *testing.T) {
	t.Parallel()
	s, _, order := spool(t, nil, func(id string) error {
		if strings.HasPrefix(id, "bad") {
			panic("out of memory")
		}
		return nil
	})
	put(t, s, "bad", "b1", map[string]int{"bad-1": 1, "bad-2": 1, "bad-3": 1})
	put(t, s, "good", "g1", map[string]int{"good": 100})
	for range 2 {
		next, _ := s.next(t.Context())
		func() {
			defer func() { _ = recover() }()
			s.one(t.Context(), next)
		}()
	}
	assert.Equal(t, []string{"bad-1", "good"}, *order)
}

// TestRotation_ManyClaims_Bounded: the claims whose import is the longest ago are dropped, which are the next ones anyway.
func TestRotation_ManyClaims_Bounded(t *testing.T) {
	t.Parallel()
	known := rotation{}
	for i := range maxRotation + 10 {
		known.take(waiting{dir: fmt.Sprintf("/%d/spool", i), namespace: "team"})
	}
	assert.Len(t, known, maxRotation)
	assert.NotContains(t, known, "claim/0")
	assert.Contains(t, known, fmt.Sprintf("claim/%d", maxRotation+9))
}

// TestSpool_LongImports_OthersMarked: the plugin gives up files if no importer made progress for half an hour.
func TestSpool_LongImports_OthersMarked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := spool(t, nil, nil)
		put(t, s, "long", "l1", map[string]int{"long": 1})
		put(t, s, "other", "o1", map[string]int{"waits": 2})
		s.Import = func(context.Context, string, string) error {
			time.Sleep(10 * progressEvery)
			return errors.New("it hangs")
		}
		next, _ := s.next(t.Context())
		require.Equal(t, "long", next.id)
		s.one(t.Context(), next)
		info, err := os.Stat(filepath.Join(s.Profiles, "o1", spoolFolder, "waits"+rawSuffix))
		require.NoError(t, err)
		assert.WithinDuration(t, time.Now(), info.ModTime(), progressEvery)
		time.Sleep(10 * progressEvery)
		info, err = os.Stat(filepath.Join(s.Profiles, "o1", spoolFolder, "waits"+rawSuffix))
		require.NoError(t, err)
		assert.Greater(t, time.Since(info.ModTime()), 9*progressEvery, "nothing is imported")
	})
}

// TestSpool_NothingStored_Paused: on a full disk neither reports nor reasons are stored, and the same file waits again at once.
func TestSpool_NothingStored_Paused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, folder, order := spool(t, map[string]string{"a": "raw"}, func(string) error { return errors.New("no space left on device") })
		blocked := filepath.Join(folder, unfinishedPrefix+"a"+failedSuffix, "not empty")
		require.NoError(t, os.MkdirAll(blocked, 0o700))
		ctx, stop := context.WithTimeout(t.Context(), 10*scanEvery)
		defer stop()
		require.NoError(t, s.Run(ctx))
		assert.InDelta(t, 10*maxTries, len(*order), maxTries)
	})
}

// spool returns a spool with raw files of claim u1, recorded with version 1, and an importer that fails for names in bad.
func spool(t *testing.T, raw map[string]string, fail func(id string) error) (Spool, string, *[]string) {
	t.Helper()
	dir := t.TempDir()
	folder := filepath.Join(dir, "profiles/u1/spool")
	require.NoError(t, os.MkdirAll(folder, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "profiles/u1/index.json"), []byte(`{"claim":{"tool":"1"}}`), 0o600))
	for id, content := range raw {
		require.NoError(t, os.WriteFile(filepath.Join(folder, id+rawSuffix), []byte(content), 0o600))
	}
	var order []string
	s := Spool{Profiles: filepath.Join(dir, "profiles"), Version: "1", Tries: filepath.Join(dir, "tries")}
	s.Import = func(_ context.Context, raw, report string) error {
		id := strings.TrimSuffix(filepath.Base(raw), rawSuffix)
		order = append(order, id)
		if err := fail(id); err != nil {
			return err
		}
		return os.WriteFile(report, []byte("report"), 0o600)
	}
	require.NoError(t, os.MkdirAll(s.Tries, 0o700))
	return s, folder, &order
}

// drain imports until no file waits.
func drain(t *testing.T, s Spool) {
	t.Helper()
	for range 100 {
		next, found := s.next(t.Context())
		if !found {
			return
		}
		s.one(t.Context(), next)
	}
	t.Fatal("something is imported for ever")
}

// TestSpool_OneFails_OthersFirst: smaller files go first, a failed file goes last, and after the second try it stays raw, with the reason.
func TestSpool_OneFails_OthersFirst(t *testing.T) {
	t.Parallel()
	s, folder, order := spool(t, map[string]string{"bad": "1", "large": "12345", "small": "12"}, func(id string) error {
		if id == "bad" {
			return errors.New("the importer refused it")
		}
		return nil
	})
	drain(t, s)
	assert.Equal(t, []string{"bad", "small", "large", "bad"}, *order)
	reason, err := os.ReadFile(filepath.Join(folder, "bad.failed"))
	require.NoError(t, err)
	assert.Equal(t, "the importer refused it\n", string(reason))
	assert.FileExists(t, filepath.Join(folder, "small.nsys-rep"))
	left, err := filepath.Glob(filepath.Join(s.Tries, "[^.]*"))
	require.NoError(t, err)
	assert.Empty(t, left, "but for the rotation")
}

// TestSpool_FileEndsTheService_NotForEver: each try terminates the container, and the next one starts with its leftovers.
func TestSpool_FileEndsTheService_NotForEver(t *testing.T) {
	t.Parallel()
	s, folder, order := spool(t, map[string]string{"bad": "1"}, func(string) error { panic("out of memory") })
	for range 5 {
		next, found := s.next(t.Context())
		if !found {
			break
		}
		func() {
			defer func() { _ = recover() }()
			s.one(t.Context(), next)
		}()
	}
	assert.Len(t, *order, maxTries)
	assert.FileExists(t, filepath.Join(folder, "bad.failed"))
}

// TestSpool_OtherVersions_LeftAlone: only the version that recorded a file imports it.
func TestSpool_OtherVersions_LeftAlone(t *testing.T) {
	t.Parallel()
	s, folder, order := spool(t, map[string]string{"a": "1"}, func(string) error { return nil })
	s.Version = "2"
	drain(t, s)
	assert.Empty(t, *order)
	s.Version = "1"
	require.NoError(t, os.Symlink("a.qdstrm", filepath.Join(folder, "link.qdstrm")))
	drain(t, s)
	assert.Equal(t, []string{"a"}, *order, "and no link")
}
