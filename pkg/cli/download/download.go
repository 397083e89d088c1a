package download

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

// Source reads reports.
type Source interface {
	// Content opens at most length bytes of a report, starting at an offset; it may return fewer.
	Content(ctx context.Context, r *v1alpha1.Report, offset, length int64) (io.ReadCloser, error)
	// Copy writes a report from the container of its process, which must be running. It returns soon after a failed write.
	Copy(ctx context.Context, r *v1alpha1.Report, to io.Writer) error
}

// Outcome is the result of Fetch.
type Outcome int

// The outcomes.
const (
	// Downloaded: the file was written.
	Downloaded Outcome = iota + 1
	// Resumed: the file was written, a part of it by an earlier download.
	Resumed
	// Present: the same file already existed.
	Present
)

const (
	// piece is the number of bytes in one request; the server sends no more.
	piece = 16 << 20
	// tries is the number of requests for a piece that fails.
	tries = 5
	// unknownSize is the number of bytes that are copied from a container for a report of unknown size, which an earlier version recorded.
	unknownSize = 1 << 30
	// mode protects reports: they contain command lines, and may contain secrets.
	mode = 0o600
)

// Downloads writes reports into a directory. It is not safe for concurrent use.
type Downloads struct {
	Source Source
	// Dir is the directory; Root is its name in errors.
	Dir  *os.Root
	Root string
	// Force overwrites other files of the same name.
	Force bool
	// Again reports whether a failed read may succeed at the next try; Wait is the pause before it.
	Again func(error) bool
	Wait  time.Duration
	// Progress is called after each part of a report; nil is allowed. total is 0 if unknown.
	Progress func(name string, done, total int64)
}

var sha = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Fetch writes a report to the file of that name, which Names returned. verified reports whether its sha256 was compared with the sha256 of
// the node, which is unknown for reports in containers. The data of an interrupted or failed download stays in the directory in a file with
// the extension .part, and the next download resumes from it.
func (d *Downloads) Fetch(ctx context.Context, r *v1alpha1.Report, name string) (outcome Outcome, verified bool, err error) {
	known := sha.MatchString(r.Status.SHA256)
	present, err := d.present(r, name)
	switch {
	case err != nil:
		return 0, false, err
	case present:
		return Present, true, nil
	case r.Status.Path != "":
		return Downloaded, known, d.copy(ctx, r, name)
	case !known || r.Status.Size < 0:
		return 0, false, fmt.Errorf("downloading report %s: it cannot be verified, because the node does not store its sha256; its state is %s", r.Name, r.Status.State)
	}
	outcome, err = d.fetch(ctx, r, name)
	return outcome, err == nil, err
}

// present reports whether the file exists with the same content; a different file of that name is an error, without Force.
func (d *Downloads) present(r *v1alpha1.Report, name string) (bool, error) {
	there, err := d.Dir.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, d.failed("reading", name, err)
	}
	if there.Mode().IsRegular() && there.Size() == r.Status.Size && sha.MatchString(r.Status.SHA256) {
		file, err := d.Dir.Open(name)
		if err != nil {
			return false, d.failed("reading", name, err)
		}
		defer func() { _ = file.Close() }()
		sum := sha256.New()
		if _, err := io.Copy(sum, file); err != nil {
			return false, d.failed("reading", name, err)
		}
		if hex.EncodeToString(sum.Sum(nil)) == r.Status.SHA256 {
			return true, nil
		}
	}
	if there.IsDir() {
		return false, fmt.Errorf("writing %s: it is a directory; choose another directory with --output", d.path(name))
	}
	if !d.Force {
		return false, fmt.Errorf("writing %s: a different file of that name exists; overwrite it with --force, or choose another directory with --output",
			d.path(name))
	}
	return false, nil
}

// part is a partial file. It does not embed the file, because io.Copy would then bypass part.
type part struct {
	file *os.File
	name string
	sum  hash.Hash
	size int64
}

// open opens a partial file and reads its content; if it is too long, nothing is kept.
func (d *Downloads) open(name string, limit int64) (*part, error) {
	if there, err := d.Dir.Lstat(name); err == nil && !there.Mode().IsRegular() {
		return nil, fmt.Errorf("writing %s: it is not a regular file; remove it", d.path(name))
	}
	file, err := d.Dir.OpenFile(name, os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return nil, d.failed("writing", name, err)
	}
	p := &part{file: file, name: name, sum: sha256.New()}
	p.size, err = io.Copy(p.sum, file)
	if err == nil && p.size > limit {
		p.sum.Reset()
		p.size = 0
		if err = file.Truncate(0); err == nil {
			_, err = file.Seek(0, io.SeekStart)
		}
	}
	if err != nil {
		return nil, errors.Join(d.failed("reading", name, err), file.Close())
	}
	return p, nil
}

func (p *part) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.sum.Write(b[:n])
	p.size += int64(n)
	if err != nil {
		return n, &writeError{err}
	}
	return n, nil
}

// writeError distinguishes errors of the file from errors of the source.
type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

// fetch downloads the missing bytes, piece by piece.
func (d *Downloads) fetch(ctx context.Context, r *v1alpha1.Report, name string) (Outcome, error) {
	// The name contains the checksum, so that the partial file of another report is not continued.
	p, err := d.open(name+"."+r.Status.SHA256[:12]+".part", r.Status.Size)
	if err != nil {
		return 0, err
	}
	outcome := Downloaded
	if p.size > 0 {
		outcome = Resumed
	}
	failed := 0
	for p.size < r.Status.Size {
		before := p.size
		err := d.piece(ctx, r, name, p)
		if p.size > before {
			failed = 0
		}
		if err == nil {
			continue
		}
		failed++
		if failed == tries || !errors.Is(err, errEmpty) && !d.Again(err) || !wait(ctx, d.Wait<<(failed-1)) {
			return 0, d.kept(p, err)
		}
	}
	if got := hex.EncodeToString(p.sum.Sum(nil)); got != r.Status.SHA256 {
		return 0, errors.Join(fmt.Errorf("downloading report %s: checksum mismatch: got sha256 %s, want %s; the file is discarded, download it again",
			r.Name, got, r.Status.SHA256), p.file.Close(), d.Dir.Remove(p.name))
	}
	return outcome, d.finish(p, name)
}

// piece appends the next piece.
func (d *Downloads) piece(ctx context.Context, r *v1alpha1.Report, name string, p *part) error {
	length := min(piece, r.Status.Size-p.size)
	body, err := d.Source.Content(ctx, r, p.size, length)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	n, err := io.Copy(d.shown(p, name, r.Status.Size), io.LimitReader(body, length))
	if err == nil && n == 0 {
		return errEmpty
	}
	return err
}

// errEmpty is returned for an empty response.
var errEmpty = errors.New("the server sent no data")

// copy downloads a report from its container, always from the beginning. The container may have replaced the file, possibly with an endless
// one.
func (d *Downloads) copy(ctx context.Context, r *v1alpha1.Report, name string) error {
	p, err := d.open(name+"."+letters(r.Name)+".part", -1)
	if err != nil {
		return err
	}
	if err := d.Source.Copy(ctx, r, &capped{to: d.shown(p, name, r.Status.Size), left: atMost(r.Status.Size)}); err != nil {
		if errors.Is(err, errLarge) {
			err = fmt.Errorf("downloading report %s: the file in the container is not the report: it is larger than %d bytes, the report is %s; copy it "+
				"with kubectl cp if you need it anyway", r.Name, atMost(r.Status.Size), sizeOf(r))
		} else if _, ours := errors.AsType[*writeError](err); ours {
			err = d.failed("writing", p.name, err)
		}
		return errors.Join(err, p.file.Close(), d.Dir.Remove(p.name))
	}
	want, got := r.Status.SHA256, hex.EncodeToString(p.sum.Sum(nil))
	if p.size == 0 || r.Status.Size > 0 && p.size != r.Status.Size || sha.MatchString(want) && want != got {
		return errors.Join(fmt.Errorf("downloading report %s: the file in the container is not the report: its size is %d bytes; it was truncated or replaced there",
			r.Name, p.size), p.file.Close(), d.Dir.Remove(p.name))
	}
	return d.finish(p, name)
}

// errLarge stops a copy before its source ends.
var errLarge = errors.New("the file is larger than the report")

// atMost returns the number of bytes to copy for a report of a size: a tenth more, which shows the size of a replaced file.
func atMost(size int64) int64 {
	if size <= 0 {
		return unknownSize
	}
	return size + min(size/10, math.MaxInt64-size)
}

func sizeOf(r *v1alpha1.Report) string {
	if r.Status.Size <= 0 {
		return "an unknown size"
	}
	return fmt.Sprint(r.Status.Size)
}

// capped is a writer that fails after a maximum of bytes.
type capped struct {
	to   io.Writer
	left int64
}

func (b *capped) Write(data []byte) (int, error) {
	if int64(len(data)) > b.left {
		return 0, errLarge
	}
	b.left -= int64(len(data))
	return b.to.Write(data)
}

// finish renames a complete file. Without Force it fails if a file of that name exists now.
func (d *Downloads) finish(p *part, name string) error {
	if err := errors.Join(p.file.Sync(), p.file.Close()); err != nil {
		return d.failed("writing", p.name, err)
	}
	if !d.Force {
		err := d.Dir.Link(p.name, name)
		if err == nil {
			if err := d.Dir.Remove(p.name); err != nil {
				return d.failed("removing", p.name, err)
			}
			return nil
		}
		if _, there := d.Dir.Lstat(name); !errors.Is(there, fs.ErrNotExist) {
			return d.failed("writing", name, err)
		}
		// The file system does not support hard links.
	}
	if err := d.Dir.Rename(p.name, name); err != nil {
		return d.failed("writing", name, err)
	}
	return nil
}

// path returns the path of a file of the directory for errors.
func (d *Downloads) path(name string) string { return filepath.Join(d.Root, name) }

// wait waits unless the context ends.
func wait(ctx context.Context, delay time.Duration) bool {
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// shown returns a writer into a partial file that shows the progress.
func (d *Downloads) shown(p *part, name string, total int64) io.Writer {
	if d.Progress == nil {
		return p
	}
	d.Progress(name, p.size, total)
	return writer(func(b []byte) (int, error) {
		n, err := p.Write(b)
		d.Progress(name, p.size, total)
		return n, err
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
