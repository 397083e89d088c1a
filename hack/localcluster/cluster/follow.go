//go:build linux

package cluster

import (
	"context"
	"io"
	"os"
	"time"
)

// followPause is the time between two reads of a log that is followed.
const followPause = 200 * time.Millisecond

// copyLog copies the file, and with follow also later lines.
func copyLog(ctx context.Context, out io.Writer, file *os.File, follow bool) error {
	for {
		if _, err := io.Copy(out, file); err != nil || !follow {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followPause):
		}
	}
}
