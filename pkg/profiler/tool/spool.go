package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// The names in the spool of a claim: pkg/plugin/profiler/store writes raw files there and collects the results.
const (
	rawSuffix    = ".qdstrm"
	reportSuffix = ".nsys-rep"
	failedSuffix = ".failed"
	spoolFolder  = "spool"
	indexFile    = "index.json"
	// unfinishedPrefix is the prefix of files that are being written there. It differs from the prefix of the store, which removes its own
	// files when it starts.
	unfinishedPrefix = ".import-"
)

// scanEvery is the interval at which spools are read.
const scanEvery = 2 * time.Second

// maxTries is the maximum number of imports of a file: on a busy machine the importer may fail the first time only.
const maxTries = 2

// Spool imports the raw files of a node that its version recorded.
type Spool struct {
	// Profiles contains a directory for each claim.
	Profiles string
	// Version is the version whose files are imported.
	Version string
	// Tries is a directory in which tries are counted. They survive a restart that a file has caused.
	Tries string
	// Import converts a raw file to a report.
	Import func(ctx context.Context, raw, report string) error
}

// waiting is a raw file that is not imported yet.
type waiting struct {
	dir, id   string
	namespace string
	tries     int
	size      int64
}

// Run imports until the context ends, one file at a time, round-robin by namespace and claim.
func (s Spool) Run(ctx context.Context) error {
	if err := os.MkdirAll(s.Tries, 0o700); err != nil {
		return err
	}
	if err := s.clean(); err != nil {
		klog.FromContext(ctx).Error(err, "Removing unfinished imports of an earlier container failed")
	}
	ticker := time.NewTicker(scanEvery)
	defer ticker.Stop()
	for {
		next, found := s.next(ctx)
		if found && s.one(ctx, next) && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// clean removes unfinished files of an earlier run of this service. Files of other versions may still be in progress.
func (s Spool) clean() error {
	left, err := filepath.Glob(filepath.Join(s.Profiles, "*", spoolFolder, unfinishedPrefix+"*"))
	for _, path := range left {
		if readRecorded(filepath.Dir(filepath.Dir(path))).Tool == s.Version {
			err = errors.Join(err, os.Remove(path))
		}
	}
	return err
}

// next returns the raw file to import now.
func (s Spool) next(ctx context.Context) (waiting, bool) {
	all, err := s.waiting()
	if err != nil {
		klog.FromContext(ctx).Error(err, "Reading spools failed")
	}
	if len(all) == 0 {
		return waiting{}, false
	}
	return s.rotation().first(all), true
}

// waiting returns the waiting raw files of all claims.
func (s Spool) waiting() (all []waiting, err error) {
	claims, err := os.ReadDir(s.Profiles)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, claim := range claims {
		all = append(all, s.of(filepath.Join(s.Profiles, claim.Name()))...)
	}
	return all, err
}

// of returns the waiting raw files of a claim.
func (s Spool) of(claim string) (all []waiting) {
	dir := filepath.Join(claim, spoolFolder)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return nil
	}
	there := map[string]bool{}
	for _, entry := range entries {
		there[entry.Name()] = true
	}
	for _, entry := range entries {
		id, raw := strings.CutSuffix(entry.Name(), rawSuffix)
		if !raw || strings.HasPrefix(id, ".") || there[id+reportSuffix] || there[id+failedSuffix] {
			continue
		}
		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() {
			all = append(all, waiting{dir: dir, id: id, size: info.Size(), tries: s.tries(id)})
		}
	}
	if len(all) == 0 {
		return nil
	}
	recorded := readRecorded(claim)
	if recorded.Tool != s.Version {
		return nil
	}
	for i := range all {
		all[i].namespace = recorded.Namespace
	}
	return all
}

// recorded contains fields of a claim's index.
type recorded struct {
	// Tool is the version that the claim's processes were recorded with.
	Tool      string `json:"tool"`
	Namespace string `json:"namespace"`
}

// readRecorded reads the index of a claim; without an index the result is empty.
func readRecorded(claim string) recorded {
	raw, err := os.ReadFile(filepath.Join(claim, indexFile))
	var index struct {
		Claim recorded `json:"claim"`
	}
	if err != nil || json.Unmarshal(raw, &index) != nil {
		return recorded{}
	}
	return index.Claim
}

// one imports a file. stored is false if neither a report nor the reason of the failure could be stored: then the file waits again at once.
func (s Spool) one(ctx context.Context, w waiting) (stored bool) {
	logger := klog.FromContext(ctx).WithValues("report", w.id, "bytes", w.size, "try", w.tries+1)
	if w.tries >= maxTries {
		return s.keepRaw(ctx, w, fmt.Errorf("the container of the importer exited %d times while importing it", w.tries))
	}
	if err := errors.Join(s.advance(w), os.WriteFile(s.mark(w.id), make([]byte, w.tries+1), 0o600)); err != nil {
		logger.Error(err, "Raw report is not imported yet")
		return s.keepRaw(ctx, w, err)
	}
	started := time.Now() // counted before the import: a file that terminates this process is not retried forever
	err := s.importing(ctx, w)
	switch {
	case ctx.Err() != nil:
		s.discard(w.id) // not because of the file
		return true
	case err == nil:
		logger.Info("Imported report", "took", time.Since(started).Round(time.Millisecond).String())
	case w.tries+1 < maxTries && !errors.Is(err, fs.ErrNotExist):
		logger.Error(err, "Raw report could not be imported and will be tried again")
		return true
	default:
		return s.keepRaw(ctx, w, err)
	}
	s.discard(w.id)
	return true
}

// importing imports a file, and marks the waiting files in the meantime.
func (s Spool) importing(ctx context.Context, w waiting) error {
	done := make(chan struct{})
	var marking sync.WaitGroup
	marking.Go(func() { s.progress(done) })
	defer marking.Wait()
	defer close(done)
	return s.Import(ctx, filepath.Join(w.dir, w.id+rawSuffix), filepath.Join(w.dir, w.id+reportSuffix))
}

// keepRaw stores the reason why a file stays raw; false if that fails.
func (s Spool) keepRaw(ctx context.Context, w waiting, cause error) (stored bool) {
	logger := klog.FromContext(ctx).WithValues("report", w.id, "bytes", w.size)
	logger.Error(cause, "Raw report could not be imported and stays raw")
	path, tmp := filepath.Join(w.dir, w.id+failedSuffix), filepath.Join(w.dir, unfinishedPrefix+w.id+failedSuffix)
	text := cause.Error()
	err := os.WriteFile(tmp, []byte(text[:min(len(text), maxOutput)]+"\n"), 0o600)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		logger.Error(err, "Storing the reason of a failed import failed")
	}
	s.discard(w.id)
	return err == nil
}

func (s Spool) mark(id string) string { return filepath.Join(s.Tries, id) }

// tries returns the number of tries of the file.
func (s Spool) tries(id string) int {
	info, err := os.Stat(s.mark(id))
	if err != nil {
		return 0
	}
	return int(info.Size())
}

func (s Spool) discard(id string) { _ = os.Remove(s.mark(id)) }
