//go:build linux

package cluster

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/prism-gpu/prism/hack/localcluster/report"
)

// lock excludes other localcluster commands from the cluster. The folder itself is locked, so that nothing remains after it is removed; a
// folder that was removed during the wait is created and locked again.
func lock(dir string, progress *report.Progress) (unlock func(), err error) {
	for {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("making the state folder: %w", err)
		}
		file, err := os.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		if err := flock(file, progress); err != nil {
			file.Close()
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		if same(file, dir) {
			return func() { file.Close() }, nil
		}
		file.Close()
	}
}

func flock(file *os.File, progress *report.Progress) error {
	err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		defer progress.Step("waiting for another localcluster command to finish with %s", file.Name())()
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	}
	return err
}

func same(file *os.File, path string) bool {
	held, err := file.Stat()
	if err != nil {
		return false
	}
	now, err := os.Stat(path)
	return err == nil && os.SameFile(held, now)
}
