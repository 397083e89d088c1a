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
	// importSizes is how many times its size an import takes of a raw file: the copy, the report and what the importer writes meanwhile.
	importSizes = 3
	// measureEvery is how often the files of an import are measured: more often than the kubelet does.
	measureEvery = time.Second
	// maxMade is how many files an importer may make. It makes a few.
	maxMade = 10_000
)

// errSpace is why an import is ended. The kubelet would evict the whole pod, with what is known of tries.
var errSpace = errors.New("the importer wrote more than profiler.importSpace allows")

// fits fails where importing a raw file could take more than there is.
func (i Importer) fits(size int64) error {
	if i.Space > 0 && size > (i.Space-spare)/importSizes {
		return fmt.Errorf("importing %d bytes may require %d times as many; profiler.importSpace allows %d bytes", size, importSizes, i.Space)
	}
	return nil
}

// watch ends an import that takes more than there is, until the context ends.
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

// taken is how many bytes the files in a directory take on the disk. Many files are as too many bytes: measuring them takes long as well.
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
