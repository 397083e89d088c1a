package plugin

import (
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/events"
)

// damagedRecords counts the records that could not be read, and reports each.
type damagedRecords struct {
	count  atomic.Int64
	logger klog.Logger
	events events.Recorder
}

// setAside reports a record that could not be read.
func (d *damagedRecords) setAside(err error) {
	d.count.Add(1)
	d.logger.Error(err, "A claim's record was set aside")
	d.events.Warn(events.CheckpointCorrupted, events.ActionRecover, err.Error())
}
