package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/profiler/counters"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
)

const (
	// checkEvery is the interval of checks whether GPUs without an order are still busy, and of retries of what failed in the directory.
	checkEvery = time.Minute
	// maxEntries limits the entries of the directory that are read.
	maxEntries = 1024
)

// profiler is Nsight Systems on this node.
type profiler interface {
	// tool describes its switches.
	tool() nsight.Tool
	// help returns the output of nsys with arguments, also with an error.
	help(ctx context.Context, args ...string) (string, error)
	// begin starts prism-run for an order. When the context ends, it is terminated, and then killed. changed reports changes in the order's
	// directory.
	begin(ctx context.Context, order *counters.Order, commands nsight.Commands, changed <-chan struct{}) (recording, error)
}

// watcher reports changes of files and of entries of directories.
type watcher interface {
	Add(path string) error
	Remove(path string) error
}

// orders are the orders of the directory. Only run uses its fields, except for those that are channels.
type orders struct {
	dir      string
	root     *os.Root
	watcher  watcher
	profiler profiler
	workers  map[string]*worker
	// waiting are orders for GPUs that a removed order still records.
	waiting map[string]bool
	running sync.WaitGroup
	// ended receives the UIDs of workers that returned, marks whether GPUs are busy, checked the results of checks.
	ended   chan string
	marks   chan mark
	checked chan listing
	// done is closed when run returns.
	done <-chan struct{}
	// busy maps the UUIDs of busy GPUs to these; written is the content of their file, nil if it is unknown.
	busy    map[string]counters.GPU
	written []byte
	// check is the timer of the next check, if armed. rescan: reading the directory failed. refused: so did writing it, which is logged.
	check                            *time.Timer
	armed, checking, rescan, refused bool
}

// mark reports the busy GPUs of an order.
type mark struct{ gpus, busy []counters.GPU }

func newOrders(dir string, root *os.Root, w watcher, p profiler) *orders {
	check := time.NewTimer(checkEvery)
	check.Stop()
	return &orders{
		dir: dir, root: root, watcher: w, profiler: p, workers: map[string]*worker{}, waiting: map[string]bool{},
		ended: make(chan string), marks: make(chan mark),
		checked: make(chan listing), busy: map[string]counters.GPU{}, check: check,
	}
}

// run carries out orders until the context ends, and returns when all recordings have ended.
func (o *orders) run(ctx context.Context, events <-chan fsnotify.Event, failures <-chan error) error {
	ctx, end := context.WithCancel(ctx)
	defer o.running.Wait()
	defer end()
	o.done = ctx.Done()
	o.written, _ = read(o.root, counters.BusyFile)
	o.scan(ctx)
	for {
		o.writeBusy(ctx)
		o.arm()
		select {
		case <-ctx.Done():
			return nil
		case event := <-events:
			if event.Name == o.dir && event.Has(fsnotify.Remove|fsnotify.Rename) {
				return fmt.Errorf("directory %s was removed", o.dir)
			}
			o.changed(ctx, event)
		case err := <-failures:
			klog.FromContext(ctx).Info("Changes of orders may have been missed; reading all of them", "reason", err.Error())
			o.scan(ctx)
		case uid := <-o.ended:
			delete(o.workers, uid)
			o.waiting[uid] = true
			for _, uid := range slices.Sorted(maps.Keys(o.waiting)) {
				o.reconcile(ctx, uid)
			}
		case m := <-o.marks:
			o.mark(m)
		case <-o.check.C:
			o.armed = false
			o.checkNow(ctx)
		case l := <-o.checked:
			o.checking = false
			o.free(l)
		}
	}
}

// scan reads all orders.
func (o *orders) scan(ctx context.Context) {
	o.rescan = false
	entries, err := names(o.root, ".", maxEntries)
	if err != nil {
		o.rescan = true
		klog.FromContext(ctx).Error(err, "Reading orders failed and will be retried")
	}
	for uid := range o.workers {
		if !slices.Contains(entries, uid) {
			entries = append(entries, uid)
		}
	}
	for _, name := range entries {
		o.reconcile(ctx, name)
	}
}

// changed handles a change of a file in the directory. A removed order may be there again, with the same content for another pod.
func (o *orders) changed(ctx context.Context, event fsnotify.Event) {
	below, is := strings.CutPrefix(event.Name, o.dir+"/")
	if !is {
		return
	}
	uid, file, _ := strings.Cut(below, "/")
	if w := o.workers[uid]; w != nil && file == counters.OrderFile && event.Has(fsnotify.Remove) {
		w.ending = true
		w.end()
	}
	o.reconcile(ctx, uid)
}

// reconcile starts, ends or informs the worker of an order.
func (o *orders) reconcile(ctx context.Context, uid string) {
	w := o.workers[uid]
	delete(o.waiting, uid)
	raw, err := o.order(uid)
	switch {
	case err != nil:
		// An order that cannot be read is not known to have changed.
		o.rescan = true
		klog.FromContext(ctx).Error(err, "Reading an order failed and will be retried", "claimUID", uid)
	case w != nil && !bytes.Equal(w.raw, raw):
		w.ending = true
		w.end()
	case w != nil:
		w.wake()
	case raw != nil:
		o.start(ctx, uid, raw)
	}
}

// order returns the content of an order, and watches its directory; nil if there is none.
func (o *orders) order(uid string) ([]byte, error) {
	info, err := o.root.Lstat(uid)
	if err != nil {
		return nil, ignoreMissing(err)
	}
	if !info.IsDir() {
		return nil, nil
	}
	// Watched before it is read: a later change is reported.
	if err := o.watcher.Add(filepath.Join(o.dir, uid)); err != nil {
		return nil, ignoreMissing(err)
	}
	raw, err := read(o.root, filepath.Join(uid, counters.OrderFile))
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return raw, ignoreMissing(err)
}

func (o *orders) start(ctx context.Context, uid string, raw []byte) {
	w := newWorker(o, uid, raw)
	if o.blocked(w) {
		o.waiting[uid] = true
		return
	}
	ctx, w.end = context.WithCancel(ctx)
	if w.state.Reason == counters.PerfmonBusy {
		o.mark(mark{w.gpus(), w.gpus()})
	}
	o.workers[uid] = w
	o.running.Go(func() { w.run(ctx) })
}

// blocked reports whether a removed order still records a GPU of the worker: nsys would report it as busy.
func (o *orders) blocked(w *worker) bool {
	for _, other := range o.workers {
		if other.ending && slices.ContainsFunc(w.gpus(), func(gpu counters.GPU) bool { return slices.Contains(other.gpus(), gpu) }) {
			return true
		}
	}
	return false
}

// over reports that a worker returned.
func (o *orders) over(uid string) {
	select {
	case o.ended <- uid:
	case <-o.done:
	}
}

// mark sets which GPUs of an order are busy.
func (o *orders) mark(m mark) {
	for _, gpu := range m.gpus {
		delete(o.busy, gpu.UUID)
	}
	for _, gpu := range m.busy {
		o.busy[gpu.UUID] = gpu
	}
}

// writeBusy writes the busy GPUs, if they changed.
func (o *orders) writeBusy(ctx context.Context) {
	content, err := counters.Busy{GPUs: slices.Sorted(maps.Keys(o.busy))}.Encode()
	if err == nil && (bytes.Equal(content, o.written) || o.written == nil && len(o.busy) == 0) {
		return
	}
	if err == nil {
		err = replace(o.root, counters.BusyFile, content)
	}
	if err == nil {
		o.written, o.refused = content, false
		return
	}
	if !o.refused {
		klog.FromContext(ctx).Error(err, "Writing the busy GPUs failed and will be retried")
	}
	o.refused = true
}

// unordered returns the busy GPUs without an order: no try to record them reports that they are free.
func (o *orders) unordered() []counters.GPU {
	free := maps.Clone(o.busy)
	for _, w := range o.workers {
		for _, gpu := range w.gpus() {
			delete(free, gpu.UUID)
		}
	}
	return slices.Collect(maps.Values(free))
}

// arm sets the timer if there is anything to check.
func (o *orders) arm() {
	if !o.armed && !o.checking && (o.rescan || o.refused || len(o.unordered()) > 0) {
		o.armed = true
		o.check.Reset(checkEvery)
	}
}

// checkNow retries what failed, and asks the profiler about busy GPUs.
func (o *orders) checkNow(ctx context.Context) {
	if o.rescan {
		o.scan(ctx)
	}
	if len(o.unordered()) == 0 || o.checking {
		return
	}
	o.checking = true
	o.running.Go(func() {
		l := list(ctx, o.profiler)
		select {
		case o.checked <- l:
		case <-ctx.Done():
		}
	})
}

// free removes GPUs that are not busy any more. If the profiler fails, nothing is known about them.
func (o *orders) free(l listing) {
	for _, gpu := range o.unordered() {
		if _, is := l.find(gpu); is.reason != counters.PerfmonBusy && is.reason != counters.Failed {
			delete(o.busy, gpu.UUID)
		}
	}
}
