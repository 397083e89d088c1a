package counting

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"time"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/disk"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/profiler/counters"
)

// orderPerm is the mode of an order: only the collector, which is root, reads it.
const orderPerm = 0o600

// claimUID matches the name of a claim's folder.
var claimUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Makes reports whether a path is mounted in containers; none is.
func (*Extension) Makes(string) bool { return false }

// Ensure writes the order of a record. It syncs nothing: after a power cut the next Prepare writes the order again. An order that would only
// change a timeout stays, because the collector ends the recording of a changed order and begins a new one.
func (e *Extension) Ensure(r *checkpoint.Record) error {
	if !e.options.Enabled {
		return nil
	}
	order, err := e.order(r)
	if err != nil {
		return err
	}
	path := e.path(r.Claim.UID, counters.OrderFile)
	there, err := e.options.Files.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The state of an order before this one must not be taken for the state of this one.
		err = e.options.Files.Remove(e.path(r.Claim.UID, counters.StateFile))
	case err == nil && same(there, *order):
		return nil
	}
	var raw []byte
	if err == nil {
		raw, err = order.Encode()
	}
	if err == nil {
		err = disk.Replace(e.options.Files, path, raw, orderPerm, false)
	}
	if err != nil {
		return fmt.Errorf("ordering the performance counters of claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, err)
	}
	return nil
}

// order returns the order of a record.
func (e *Extension) order(r *checkpoint.Record) (*counters.Order, error) {
	of, err := checkpoint.ExtensionOf[gpu.CounterOptions](r.Extensions, claim.KindCounters)
	if err == nil && of == nil {
		err = errors.New("the record contains no GPUs")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the performance counters in the record of claim %s/%s: %w", r.Claim.Namespace, r.Claim.Name, err)
	}
	config, err := e.options.Config(r)
	if err != nil {
		return nil, err
	}
	order := &counters.Order{
		Claim: r.Claim.UID, Namespace: r.Claim.Namespace, Name: r.Claim.Name, Node: e.options.NodeName, FrequencyHz: of.FrequencyHz,
		MetricSet: of.MetricSet, Manual: config.Manual(), Seconds: of.Seconds, File: *config.Output.FileName,
		StartSeconds: int64(e.options.StartTimeout / time.Second), ReportSeconds: int64(e.options.ReportTimeout / time.Second),
	}
	for _, g := range of.GPUs {
		order.GPUs = append(order.GPUs, counters.GPU{UUID: string(g.UUID), PCIAddress: g.PCIAddress})
	}
	return order, nil
}

// same reports whether an existing order orders the same, except for timeouts.
func same(there []byte, order counters.Order) bool {
	before, err := counters.ParseOrder(there)
	if err != nil {
		return false
	}
	order.StartSeconds, order.ReportSeconds = before.StartSeconds, before.ReportSeconds
	return reflect.DeepEqual(*before, order)
}

// RemoveFiles removes the order of a claim, which ends its recording; it does not wait for that. The store removes the folder once it has
// stored the reports.
func (e *Extension) RemoveFiles(uid string) error {
	if !claimUID.MatchString(uid) {
		return nil
	}
	path := e.path(uid, counters.OrderFile)
	if err := errors.Join(e.options.Files.Remove(path), e.options.Files.Remove(path+disk.TempSuffix)); err != nil {
		return fmt.Errorf("removing the order for the performance counters of claim %s: %w", uid, err)
	}
	return nil
}

// Claims lists the claims with an order. The garbage collection removes orders without a record: a kill between the record's removal and the
// order's left them, or a power cut undid a removal, which is not synced.
func (e *Extension) Claims() ([]string, error) {
	names, err := e.options.Files.List(e.options.Dir)
	if err != nil {
		return nil, fmt.Errorf("listing the orders in %s: %w", e.options.Dir, err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		return !claimUID.MatchString(name) || !e.ordered(name)
	}), nil
}

// ordered reports whether a claim has an order, or an unfinished one.
func (e *Extension) ordered(uid string) bool {
	for _, name := range []string{counters.OrderFile, counters.OrderFile + disk.TempSuffix} {
		if _, err := os.Lstat(filepath.Join(e.options.Dir, uid, name)); err == nil {
			return true
		}
	}
	return false
}
