package view

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// garbage is how much garbage there may be, in percent of the memory in use.
	garbage = 50
	// small is the memory that may be used before garbage is collected more often: with the program itself it is less than 192 MiB.
	small = 112 << 20
)

// limitMemory keeps the memory of the process small while objects of a large cluster are decoded, most of which are dropped at once. It does
// nothing if the user set limits for Go programs.
func limitMemory() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	debug.SetGCPercent(garbage)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if live[0].Value.Kind() == metrics.KindUint64 {
		debug.SetMemoryLimit(max(small, int64(min(live[0].Value.Uint64(), 1<<40))*(100+garbage)/100))
	}
}
