package download

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// kept closes the partial file of a failed download, and adds its size to the error; an empty file is removed.
func (d *Downloads) kept(p *part, err error) error {
	if _, ours := errors.AsType[*writeError](err); ours {
		err = d.failed("writing", p.name, err)
	}
	closing := p.file.Close()
	if p.size == 0 {
		return errors.Join(err, closing, d.Dir.Remove(p.name))
	}
	if closing != nil {
		err = errors.Join(err, closing)
	}
	return fmt.Errorf("%w; %d bytes are kept in %s, and the next download resumes from there", err, p.size, d.path(p.name))
}

// failed returns an error of a file with a remedy.
func (d *Downloads) failed(doing, name string, err error) error {
	cause, fix := err, ""
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		cause = path.Err // it contains the name only
	} else if link, ok := errors.AsType[*os.LinkError](err); ok {
		cause = link.Err
	}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		fix = "; free space, or choose another directory with --output"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		fix = "; choose a writable directory with --output"
	}
	return fmt.Errorf("%s %s: %w%s", doing, d.path(name), cause, fix)
}
