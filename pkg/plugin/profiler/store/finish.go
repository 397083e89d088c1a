package store

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/plugin/profiler/untrusted"
	"github.com/prism-gpu/prism/pkg/profiler/report"
)

// Reasons why a report is Lost or Raw.
const (
	reasonNoReport  = "ReportLost"
	reasonNotAFile  = "ReportNotRegularFile"
	reasonChanged   = "ReportChangedWhileRead"
	reasonSparse    = "ReportSparse"
	reasonFull      = "StoreFull"
	reasonNoImport  = "ImporterNotInstalled"
	reasonImport    = "ImportFailed"
	reasonImportOut = "ImportedFileInvalid"
)

// errChanged: a container wrote to the file while it was read, so it is not stored.
var errChanged = errors.New("the file changed while it was read")

// errSparse: the file contains holes instead of data, so it is not stored.
var errSparse = errors.New("the file is sparse")

// errFull: the file exceeds the rest of the claim's limit, so it is not stored.
var errFull = errors.New("the file exceeds the remaining space for reports")

// finish takes the file with that number of a finished session, and returns the resulting report. The session is discarded after the index
// is written: after a kill in between, the next scan does the rest.
func (s *Store) finish(copying *copies, dir *os.File, r report.Report, said note, number int) (report.Report, error) {
	if r.Path != "" {
		return stays(r, said), nil
	}
	name := "report" + rangeName(number)
	err := s.take(copying, dir, name+readySuffix, reportsDir, r.ID+readySuffix, &r)
	r.State = report.Ready
	if errors.Is(err, fs.ErrNotExist) {
		folder := reportsDir
		r.State = report.Raw
		if s.Imports {
			folder, r.State = spoolDir, report.Importing
		} else if r.Reason == "" {
			r.Reason = reasonNoImport
		}
		err = s.take(copying, dir, name+rawSuffix, folder, r.ID+rawSuffix, &r)
	}
	if reason := lost(err); reason != "" {
		r.State, r.Size, r.SHA256, r.Message = report.Lost, 0, "", said.message()
		if reason != reasonNoReport || r.Reason == "" || r.Reason == reasonNoImport {
			r.Reason = reason
		}
	} else if err != nil {
		return r, fmt.Errorf("storing report %s: %w", r.ID, err)
	} else if r.State == report.Raw {
		r.File += rawSuffix
	} else {
		r.File += readySuffix
	}
	return r, nil
}

// stays returns a report that the tool wrote elsewhere in the container: only the note describes it.
func stays(r report.Report, said note) report.Report {
	if bytes, err := strconv.ParseInt(said["size"], 10, 64); err == nil && bytes > 0 && bytes <= maxSize {
		r.Size = bytes
	}
	switch suffix := path.Ext(r.Path); {
	case said["state"] == "Finished" && suffix == readySuffix:
		r.State, r.File = report.Ready, r.File+suffix
	case said["state"] == "Finished" && suffix == rawSuffix:
		r.State, r.File = report.Raw, r.File+suffix
	default:
		r.State, r.Path, r.Size, r.Message = report.Lost, "", 0, said.message()
		if r.Reason == "" {
			r.Reason = reasonNoReport
		}
	}
	return r
}

// lost returns the reason why a container's file is not a report; empty if the store itself failed.
func lost(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return reasonNoReport
	case errors.Is(err, untrusted.ErrKind):
		return reasonNotAFile
	case errors.Is(err, errChanged), errors.Is(err, unix.EWOULDBLOCK): // a lease: a process has the file open
		return reasonChanged
	case errors.Is(err, errSparse):
		return reasonSparse
	case errors.Is(err, errFull):
		return reasonFull
	}
	return ""
}

// take copies a file of a session into a folder of the store, with its size and hash. It is copied because no rename, mode or lease revokes
// a file from a container that has it open: root in the container can open it for writing again through /proc.
func (s *Store) take(copying *copies, dir *os.File, from, folder, to string, r *report.Report) error {
	source, before, err := untrusted.File(dir, from, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer source.Close()
	if before.Size > s.left(r.ClaimUID)+r.Size { // the raw file of an imported report is deleted
		s.makeRoom(r, before.Size)
	}
	if before.Size > s.left(r.ClaimUID)+r.Size {
		return errFull
	}
	if before.Size == 0 {
		return fs.ErrNotExist
	}
	if isSparse(source, before) {
		return errSparse
	}
	tmp := s.path(r.ClaimUID, folder, newPrefix+r.ID)
	size, sum, err := copying.duplicate(source, before, tmp)
	if err == nil {
		err = s.Files.Rename(tmp, s.path(r.ClaimUID, folder, to))
	}
	if err == nil {
		err = s.Files.SyncDir(s.path(r.ClaimUID, folder))
	}
	if err != nil {
		return errors.Join(err, s.Files.Remove(tmp))
	}
	r.Size, r.SHA256 = size, sum
	return nil
}

// left returns the unused part of a claim's limits.
func (s *Store) left(uid string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, left := s.claims[uid], int64(math.MaxInt64)
	if c == nil {
		return 0
	}
	if c.Claim.MaxBytes > 0 {
		left = c.Claim.MaxBytes - c.bytes()
	}
	if s.NodeBytes > 0 {
		all, namespace := int64(0), int64(0)
		for _, other := range s.claims {
			all += other.bytes()
			if other.Claim.Namespace == c.Claim.Namespace {
				namespace += other.bytes()
			}
		}
		left = min(left, s.NodeBytes-all, s.NodeBytes/namespaces-namespace)
	}
	return left
}
