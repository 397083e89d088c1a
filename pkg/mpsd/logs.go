package mpsd

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// logLimit limits the size of a log. Only the last half of a longer log stays.
const logLimit = 1 << 20

// cutLogs cuts the logs in a directory. Processes that append to their log continue at the new end; processes that keep a position leave a
// hole, which takes no space and does not count.
func cutLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range entries {
		if entry.Type().IsRegular() {
			err = errors.Join(err, cutLog(filepath.Join(dir, entry.Name())))
		}
	}
	return err
}

func cutLog(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	const blockSize = 512
	stat, ok := info.Sys().(*syscall.Stat_t)
	if info.Size() <= logLimit || ok && stat.Blocks*blockSize <= logLimit {
		return nil
	}
	tail := make([]byte, logLimit/2)
	n, err := f.ReadAt(tail, info.Size()-int64(len(tail)))
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(tail[:n], 0)
	return err
}

// logSize returns the offset of the log's present end.
func logSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// logAfter returns the last bytes that were logged after the offset.
func logAfter(path string, offset int64) string {
	const most = 4 << 10
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	from := max(offset, logSize(path)-most)
	text := make([]byte, most)
	n, _ := f.ReadAt(text, from) // a short read is fine
	return string(text[:n])
}

// lastLines returns the last lines that were logged after the offset, joined to one line, without lines about commands.
func lastLines(path string, offset int64) string {
	const most = 3
	var lines []string
	for line := range strings.Lines(logAfter(path, offset)) {
		line = strings.TrimSpace(line)
		_, message, _ := strings.Cut(line, "] ")
		if _, err := strconv.ParseFloat(message, 64); err == nil || strings.HasPrefix(message, "Cmd:") || strings.HasPrefix(message, "NEW UI") {
			continue
		}
		lines = append(lines, line)
	}
	return strings.ToValidUTF8(strings.Join(lines[max(0, len(lines)-most):], "; "), "")
}

// logEnd returns lastLines with an introduction; "" if there are none.
func logEnd(path string, offset int64) string {
	if lines := lastLines(path, offset); lines != "" {
		return "; its log ends: " + lines
	}
	return ""
}
