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
	// scanBytes is how much of a claim's files is copied in a scan before those of others; the file that exceeds it is copied whole.
	scanBytes = 256 << 20
	// copyPart is how much is copied until it is seen whether the file has changed, in bytes.
	copyPart = 8 << 20
	// syncPart is how much is copied until it is synced: a sync of gigabytes would keep limits from being counted.
	syncPart = 64 << 20
	// sparseness is by how much a file may be larger than what it takes, which a file system that compresses makes too.
	sparseness = 64
)

// copies are those of one claim in one scan, and what bounds them.
type copies struct {
	ctx   context.Context //nolint:containedctx // it is that of a scan, and lives as long
	files disk.Files
	// left is how many bytes may be copied, reports how many reports may be new, lost how many may be without a file.
	left          int64
	reports, lost int
	// notes are those of the sessions, and how much of them may be read.
	notes notes
	// counted says that reports is known.
	counted bool
	// taken is what was copied out of sessions that the inbox still has.
	taken int64
	// part is called after each part of a file; nil is allowed.
	part func(taken int64)
}

// duplicate copies a file durably, errChanged if it is not what it was before.
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

// isSparse reports whether a file is mostly holes: it took the container no space, and would take the node as much as its size says. What
// takes none before it is written to the disk is written first.
func isSparse(f *os.File, st *unix.Stat_t) bool {
	few := func(st *unix.Stat_t) bool { return st.Size > copyPart && st.Blocks*512 < st.Size/sparseness }
	if !few(st) {
		return false
	}
	var after unix.Stat_t
	return f.Sync() == nil && unix.Fstat(int(f.Fd()), &after) == nil && few(&after)
}

// unchanged reports whether a file is still what it was.
func unchanged(f *os.File, before *unix.Stat_t) bool {
	var after unix.Stat_t
	return unix.Fstat(int(f.Fd()), &after) == nil && after.Size == before.Size && after.Mtim == before.Mtim && after.Ctim == before.Ctim
}
