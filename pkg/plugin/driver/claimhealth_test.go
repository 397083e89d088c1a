package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/test/fakes"
)

// onGPU is the record of a claim with devices of newHealthy.
func onGPU(uid string, devices ...HealthDevice) *checkpoint.Record {
	r := &checkpoint.Record{Claim: checkpoint.Claim{UID: uid, Namespace: "default", Name: "claim-" + uid}, State: checkpoint.Done}
	for _, d := range devices {
		r.Results = append(r.Results, checkpoint.Result{Request: d.Name, Pool: d.Pool, Device: d.Name, Type: d.Type, GPUUUID: d.GPU})
	}
	return r
}

// stored lists condition Healthy of each device of a claim in the API server.
func stored(t *testing.T, client *fake.Clientset, uid string) (all []string) {
	t.Helper()
	rc, err := client.ResourceV1().ResourceClaims("default").Get(t.Context(), "claim-"+uid, metav1.GetOptions{})
	require.NoError(t, err)
	for _, d := range rc.Status.Devices {
		line := d.Device
		if c := meta.FindStatusCondition(d.Conditions, ConditionHealthy); c != nil {
			line += fmt.Sprintf(" %s %s: %s", c.Status, c.Reason, c.Message)
		}
		assert.True(t, meta.IsStatusConditionTrue(d.Conditions, kube.ConditionReady))
		all = append(all, line)
	}
	return all
}

// following is a process that follows the health of its claims' devices.
type following struct {
	*healthy
	statuses *kube.Statuses
	status   ClaimStatus
	client   *fake.Clientset
	node     atomic.Pointer[gpu.Node]
	err      error // of reading records
	read     int
}

// followed starts it in a bubble, with the records as in the API server.
func followed(t *testing.T, records ...*checkpoint.Record) *following {
	t.Helper()
	return followedFrom(t, newHealthy(), records...)
}

// followedFrom is followed with the health at the start.
func followedFrom(t *testing.T, start *healthy, records ...*checkpoint.Record) *following {
	t.Helper()
	f := &following{healthy: start, client: fake.NewClientset()}
	for _, r := range records {
		rc := claimOf(r.Claim.UID)
		rc.Status.Allocation = &resourceapi.AllocationResult{}
		for _, result := range r.Results {
			rc.Status.Allocation.Devices.Results = append(rc.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
				Request: result.Request, Driver: "gpu.prism.dev", Pool: result.Pool, Device: result.Device,
			})
		}
		require.NoError(t, f.client.Tracker().Add(rc))
	}
	f.node.Store(&gpu.Node{})
	f.prepareAll(t, records)
	f.statuses = f.newStatuses()
	port := f.port()
	port.Began = time.Now()
	f.status = ClaimStatus{Statuses: f.statuses, Node: f.node.Load, Conditions: []ConditionSource{port.Conditions}}
	stop := fakes.Run(t, f.statuses.Run)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		port.FollowClaims(ctx, func() ([]*checkpoint.Record, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.read++
			return records, f.err
		}, f.status.Prepared)
	}()
	t.Cleanup(func() {
		end()
		<-ended
		stop()
	})
	return f
}

func (f *following) newStatuses() *kube.Statuses {
	return kube.NewStatuses(kube.StatusesOptions{Client: f.client, DriverName: "gpu.prism.dev", Conditions: []string{ConditionHealthy}})
}

// prepareAll writes the statuses of prepared claims as the process before, which has found their devices as they were then.
func (f *following) prepareAll(t *testing.T, records []*checkpoint.Record) {
	t.Helper()
	var sources []ConditionSource
	if f.earlier != nil {
		sources = append(sources, (&Health{Of: f.earlier, Began: time.Now()}).Conditions)
	}
	statuses := f.newStatuses()
	stop := fakes.Run(t, statuses.Run)
	for _, r := range records {
		if r.State == checkpoint.Done {
			ClaimStatus{Statuses: statuses, Node: f.node.Load, Conditions: sources}.Prepared(r)
		}
	}
	require.NoError(t, statuses.Drain(t.Context()))
	stop()
}

// written returns how many statuses were written since the last call.
func (f *following) written(t *testing.T) func() int64 {
	var last int64
	return func() int64 {
		synctest.Wait()
		require.NoError(t, f.statuses.Drain(t.Context()))
		now := f.statuses.Stats()
		defer func() { last = now.Written }()
		return now.Written - last
	}
}

var (
	deviceA   = HealthDevice{Pool: "n0", Name: "gpu-a", Type: gpu.TypeGPU, GPU: "A"}
	deviceB   = HealthDevice{Pool: "n0/gpu-b", Name: "gpu-b-mig-1g-0", Type: gpu.TypeMIG, GPU: "B"}
	deviceBts = HealthDevice{Pool: "n0/gpu-b", Name: "gpu-b-ts", Type: gpu.TypeTimeSlice, GPU: "B"}
	monitors  = HealthDevice{Pool: "n0/monitor", Name: "monitor", Type: gpu.TypeMonitor}
)

// TestFollowClaims_ProblemBeginsAndEnds_OneWriteEach to claims on the GPU, in whatever way they use it, and none to others.
func TestFollowClaims_ProblemBeginsAndEnds_OneWriteEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unfinished := onGPU("c", deviceBts)
		unfinished.State = checkpoint.Intent
		f := followed(t, onGPU("a", deviceA), onGPU("b", deviceB, deviceA), unfinished, onGPU("d", deviceBts), onGPU("m", monitors))
		written := f.written(t)
		assert.Zero(t, written(), "all devices are healthy")
		assert.EqualValues(t, 3, f.statuses.Stats().Unchanged, "compared once")
		assert.Equal(t, 1, f.read)

		lost := DeviceHealth{State: Unhealthy, Reason: "GPULost", Message: "lost: reset it"}
		f.set("B", lost)
		assert.EqualValues(t, 2, written())
		sick := []string{"gpu-b-mig-1g-0 False GPULost: lost: reset it", "gpu-a"}
		assert.Equal(t, sick, stored(t, f.client, "b"))
		assert.Equal(t, []string{"gpu-b-ts False GPULost: lost: reset it"}, stored(t, f.client, "d"))
		assert.Equal(t, []string{"gpu-a"}, stored(t, f.client, "a"))
		assert.Equal(t, []string{"monitor"}, stored(t, f.client, "m"))
		assert.Empty(t, stored(t, f.client, "c"))

		f.set("B", lost)
		f.set("A", DeviceHealth{State: Healthy})
		time.Sleep(time.Hour)
		assert.Zero(t, written(), "nothing changed")
		assert.Equal(t, 2, f.read)
		f.status.Prepared(onGPU("b", deviceB, deviceA))
		assert.Zero(t, written(), "another cause to write the status keeps the condition")

		f.set("B", DeviceHealth{State: Unhealthy, Reason: "RecoveryAction", Message: "reset it"})
		assert.EqualValues(t, 2, written())
		f.set("B", DeviceHealth{State: Healthy})
		assert.EqualValues(t, 2, written())
		assert.Equal(t, []string{"gpu-b-mig-1g-0", "gpu-a"}, stored(t, f.client, "b"))
		assert.Equal(t, []string{"gpu-b-ts"}, stored(t, f.client, "d"))
	})
}

// TestFollowClaims_Unknown_WrittenAfter5Minutes: a driver that is loaded again meanwhile causes no write.
func TestFollowClaims_Unknown_WrittenAfter5Minutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := followed(t, onGPU("a", deviceA), onGPU("b", deviceB))
		written := f.written(t)
		f.uncheck("A")
		time.Sleep(unknownFor - time.Second)
		assert.Zero(t, written())
		time.Sleep(unknownPeriod)
		assert.EqualValues(t, 1, written())
		assert.Equal(t, []string{"gpu-a Unknown NotChecked: " + notChecked}, stored(t, f.client, "a"))
		time.Sleep(time.Hour)
		assert.Zero(t, written())
		f.mu.Lock()
		delete(f.unchecked, "A")
		f.mu.Unlock()
		time.Sleep(unknownPeriod)
		assert.EqualValues(t, 1, written())
		assert.Equal(t, []string{"gpu-a"}, stored(t, f.client, "a"))
	})
}

// TestFollowClaims_NeverChecked_UnknownSinceTheStart of the process.
func TestFollowClaims_NeverChecked_UnknownSinceTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		h := &Health{Began: began, Of: func(HealthDevice) DeviceHealth { return DeviceHealth{State: HealthUnknown, Message: "no driver"} }}
		assert.Nil(t, h.condition(deviceA, began.Add(unknownFor-1)))
		assert.Equal(t, &kube.Condition{Type: ConditionHealthy, Unknown: true, Reason: "NotChecked", Message: "no driver"}, h.condition(deviceA, began.Add(unknownFor)))
		assert.Nil(t, h.condition(monitors, began.Add(time.Hour)))
	})
}

// TestFollowClaims_SickAtStart_Written: the process before may have ended before it wrote the statuses.
func TestFollowClaims_SickAtStart_Written(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := newHealthy()
		start.of["A"] = DeviceHealth{State: Unhealthy, Reason: "XID", Message: "XID 79"}
		f := followedFrom(t, start, onGPU("a", deviceA), onGPU("b", deviceB))
		written := f.written(t)
		assert.EqualValues(t, 1, written())
		assert.Equal(t, []string{"gpu-a False XID: XID 79"}, stored(t, f.client, "a"))
	})
}

// TestFollowClaims_ProblemEndedBeforeTheStart_ConditionRemoved: the driver was loaded again while no process ran. A condition stays as long as
// the health of its device is not known, and claims whose status is right are not written.
func TestFollowClaims_ProblemEndedBeforeTheStart_ConditionRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := newHealthy()
		start.of["B"] = DeviceHealth{State: HealthUnknown, Message: "no driver"}
		start.earlier = func(HealthDevice) DeviceHealth {
			return DeviceHealth{State: Unhealthy, Reason: "XID", Message: "XID 79"}
		}
		f := followedFrom(t, start, onGPU("a", deviceA), onGPU("b", deviceB), onGPU("m", monitors))
		written := f.written(t)
		assert.EqualValues(t, 1, written())
		assert.Equal(t, []string{"gpu-a"}, stored(t, f.client, "a"))
		assert.Equal(t, []string{"gpu-b-mig-1g-0 False XID: XID 79"}, stored(t, f.client, "b"))
		f.set("B", DeviceHealth{State: Healthy})
		assert.EqualValues(t, 1, written())
		assert.Equal(t, []string{"gpu-b-mig-1g-0"}, stored(t, f.client, "b"))
		time.Sleep(time.Hour)
		assert.Zero(t, written())
		assert.Zero(t, f.statuses.Stats().Unchanged)
	})
}

// TestFollowClaims_RecordsUnreadable_WrittenLater: claims that can be read are written at once, and again only if that changes them.
func TestFollowClaims_RecordsUnreadable_WrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := followed(t, onGPU("a", deviceA))
		written := f.written(t)
		assert.Zero(t, written())
		assert.Equal(t, 1, f.read, "all claims are compared")
		f.err = errors.New("a record cannot be read")
		f.set("A", DeviceHealth{State: Unhealthy, Reason: "XID", Message: "XID 79"})
		assert.EqualValues(t, 1, written())
		time.Sleep(unknownPeriod * 3 / 2)
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()
		time.Sleep(unknownPeriod)
		assert.Zero(t, written())
		assert.Equal(t, 4, f.read)
		time.Sleep(unknownPeriod)
		assert.Zero(t, written())
		assert.Equal(t, 4, f.read, "all is written")
	})
}

// TestFollowClaims_NoDriver_DataKept: a status that is written while no driver is loaded keeps the data about the hardware.
func TestFollowClaims_NoDriver_DataKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := followed(t, onGPU("a", deviceA))
		f.node.Store(&gpu.Node{Driver: gpu.Driver{Version: "580.95.05"}, GPUs: []gpu.GPU{{UUID: "A", Product: gpu.Product{Name: "NVIDIA L40S"}}}})
		data := func() string {
			synctest.Wait()
			require.NoError(t, f.statuses.Drain(t.Context()))
			rc, err := f.client.ResourceV1().ResourceClaims("default").Get(t.Context(), "claim-a", metav1.GetOptions{})
			require.NoError(t, err)
			return string(rc.Status.Devices[0].Data.Raw)
		}
		f.status.Prepared(onGPU("a", deviceA))
		before := data()
		assert.Contains(t, before, "NVIDIA L40S")
		f.node.Store(&gpu.Node{})
		f.set("A", DeviceHealth{State: Unhealthy, Reason: "XID", Message: "XID 79"})
		f.status.Prepared(onGPU("a", deviceA))
		assert.Equal(t, before, data())
		assert.Equal(t, []string{"gpu-a False XID: XID 79"}, stored(t, f.client, "a"))
	})
}
