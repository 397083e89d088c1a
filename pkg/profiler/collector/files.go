package collector

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

// open opens a regular file for reading. It follows no link out of the root.
func open(root *os.Root, path string) (*os.File, error) {
	file, err := root.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// read reads a file of package counters; a file that is too large is refused by its decoder.
func read(root *os.Root, path string) ([]byte, error) {
	file, err := open(root, path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, counters.MaxFile+1))
}

// replace writes a file whole, by rename.
func replace(root *os.Root, path string, content []byte) error {
	tmp := path + ".tmp"
	err := root.WriteFile(tmp, content, 0o600)
	if err == nil {
		err = root.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, ignoreMissing(root.Remove(tmp)))
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// names lists the entries of a directory, up to a limit.
func names(root *os.Root, path string, limit int) ([]string, error) {
	dir, err := root.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	all, err := dir.Readdirnames(limit)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return all, err
}

// output keeps the first bytes of the output of a program.
type output struct{ bytes []byte }

// maxOutput is the number of bytes that are kept.
const maxOutput = 64 << 10

// Write never fails.
func (o *output) Write(p []byte) (int, error) {
	o.bytes = append(o.bytes, p[:min(len(p), maxOutput-len(o.bytes))]...)
	return len(p), nil
}
