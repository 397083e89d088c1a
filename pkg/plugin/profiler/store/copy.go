package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/disk"
)

const (
	// scanBytes is the number of bytes of a claim's files that one scan copies before the files of others; the file that exceeds it is
	// copied completely.
	scanBytes = 256 << 20
	// copyPart is the number of bytes that are copied between two checks whether the file has changed.
	copyPart = 8 << 20
	// syncPart is the number of bytes between two syncs: a sync of gigabytes would delay the check of limits.
	syncPart = 64 << 20
	// sparseness is the maximum ratio of a file's size to its space on the disk, which is also above 1 on a compressing file system.
	sparseness = 64
)

// copies are the copies of one claim in one scan, and their limits.
type copies struct {
	ctx   context.Context //nolint:containedctx // of a scan, with the same lifetime
	files disk.Files
	// left is the number of bytes that may be copied, reports the number of reports that may be added, lost the number of reports without a
	// file that may be added.
	left          int64
	reports, lost int
	// cancelled are the sessions that were cancelled.
	cancelled []string
	// notes are the notes of the sessions, and the limit for reading them.
	notes notes
	// counted: reports is set.
	counted bool
	// taken is the number of bytes that were copied from sessions that are still in the inbox.
	taken int64
	// part is called after each part of a file; nil is allowed.
	part func(taken int64)
}

// duplicate copies a file durably. It returns errChanged if the file differs from before.
func (c *copies) duplicate(source *os.File, before *unix.Stat_t, path string) (size int64, sum string, err error) {
	target, err := c.files.Create(path, 0o600)
	if err != nil {
		return 0, "", err
	}
	hash := sha256.New()
	for to := io.MultiWriter(target, hash); err == nil && size < before.Size; {
		var n int64
		n, err = io.Copy(to, io.LimitReader(source, min(copyPart, before.Size-size)))
		size += n
		c.left -= n
		if err == nil && size/syncPart > (size-n)/syncPart {
			err = target.Sync()
		}
		if c.part != nil {
			c.part(c.taken)
		}
		switch {
		case err != nil:
		case c.ctx.Err() != nil:
			err = c.ctx.Err()
		case n == 0 || !unchanged(source, before):
			err = errChanged
		}
	}
	if err == nil {
		err = target.Sync()
	}
	if closeErr := target.Close(); err == nil {
		err = closeErr
	}
	return size, hex.EncodeToString(hash.Sum(nil)), err
}

// isSparse reports whether a file consists mostly of holes: it takes no space in the container, but would take its whole size on the node.
// Files that occupy no space because they are not yet written to the disk are synced first.
func isSparse(f *os.File, st *unix.Stat_t) bool {
	few := func(st *unix.Stat_t) bool { return st.Size > copyPart && st.Blocks*512 < st.Size/sparseness }
	if !few(st) {
		return false
	}
	var after unix.Stat_t
	return f.Sync() == nil && unix.Fstat(int(f.Fd()), &after) == nil && few(&after)
}

// unchanged reports whether a file is unchanged.
func unchanged(f *os.File, before *unix.Stat_t) bool {
	var after unix.Stat_t
	return unix.Fstat(int(f.Fd()), &after) == nil && after.Size == before.Size && after.Mtim == before.Mtim && after.Ctim == before.Ctim
}
