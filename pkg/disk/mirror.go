package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Mirror makes to a durable copy of from, completely or not at all. It copies nothing if to is a copy already. The copy has exactly the
// requested permissions, whatever the umask. Only a small part of the files is in memory. fs.ErrNotExist: from does not exist.
func (o OS) Mirror(from, to string, perm fs.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	if same, err := holds(to, source); err != nil {
		return err
	} else if same {
		return os.Chmod(to, perm)
	}
	if _, err := source.Seek(0, io.SeekStart); err != nil {
		return err
	}
	tmp := to + TempSuffix
	if err := copyTo(tmp, source, perm); err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", tmp, err), o.Remove(tmp))
	}
	if err := o.Rename(tmp, to); err != nil {
		return errors.Join(fmt.Errorf("moving %s into place: %w", tmp, err), o.Remove(tmp))
	}
	return o.SyncDir(filepath.Dir(to))
}

func copyTo(path string, source io.Reader, perm fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, source)
	return errors.Join(err, f.Chmod(perm), f.Sync(), f.Close())
}

// holds reports whether the content of a file equals content; false if the file does not exist.
func holds(path string, content io.Reader) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	const chunk = 64 << 10
	have, want := make([]byte, chunk), make([]byte, chunk)
	for {
		n, endOfFile := io.ReadFull(f, have)
		m, endOfContent := io.ReadFull(content, want)
		if !bytes.Equal(have[:n], want[:m]) {
			return false, nil
		}
		for _, err := range []error{endOfFile, endOfContent} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if endOfFile != nil {
			return true, nil
		}
	}
}
