package tool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

const (
	// importSizes is the space for an import as a multiple of the raw file: the copy, the report and temporary files of the importer.
	importSizes = 3
	// measureEvery is the interval at which the files of an import are measured: more often than the kubelet does.
	measureEvery = time.Second
	// maxMade is the maximum number of files of an importer, which creates only a few.
	maxMade = 10_000
)

// errSpace cancels an import. Otherwise the kubelet would evict the whole pod, including the record of tries.
var errSpace = errors.New("the importer wrote more than profiler.importSpace allows")

// fits returns an error if importing a raw file could exceed the space.
func (i Importer) fits(size int64) error {
	if i.Space > 0 && size > (i.Space-spare)/importSizes {
		return fmt.Errorf("importing %d bytes may require %d times as many; profiler.importSpace allows %d bytes", size, importSizes, i.Space)
	}
	return nil
}

// watch cancels an import that exceeds the space, until the context ends.
func (i Importer) watch(ctx context.Context, dir *os.Root, end context.CancelCauseFunc) {
	if i.Space <= 0 {
		return
	}
	ticker := time.NewTicker(measureEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if taken(dir, maxMade) > i.Space-spare/2 {
				end(errSpace)
				return
			}
		}
	}
}

// taken returns the number of bytes that the files in a directory occupy on the disk. Too many files count as too many bytes, because
// measuring them takes long as well.
func taken(dir *os.Root, most int) (bytes int64) {
	const tooMany = 1 << 62
	_ = fs.WalkDir(dir.FS(), ".", func(_ string, entry fs.DirEntry, err error) error {
		if most--; most < 0 {
			bytes = tooMany
			return fs.SkipAll
		}
		if err != nil {
			return nil //nolint:nilerr // it was removed
		}
		if info, err := entry.Info(); err == nil {
			if of, ok := info.Sys().(*syscall.Stat_t); ok {
				bytes += of.Blocks * 512
			}
		}
		return nil
	})
	return bytes
}
