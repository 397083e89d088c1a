package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
)

const limit = time.Minute

// transaction answers from a table, and refuses unknown claims.
type transaction struct {
	mu         sync.Mutex
	records    map[string]*checkpoint.Record
	unprepared []string
	during     func()
}

func (tx *transaction) Prepare(ctx context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error) {
	if tx.during != nil {
		tx.during()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if r, ok := tx.records[string(rc.UID)]; ok {
		return r, nil
	}
	return nil, fmt.Errorf("claim %s is not welcome", rc.UID)
}

func (tx *transaction) Unprepare(ctx context.Context, uid string) error {
	if tx.during != nil {
		tx.during()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, ok := tx.records[uid]; !ok {
		return fmt.Errorf("claim %s stays", uid)
	}
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.unprepared = append(tx.unprepared, uid)
	return nil
}

// reports stores the reports, by UID.
type reports struct {
	mu       sync.Mutex
	reported map[string]string
}

func (r *reports) report(uid, what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported == nil {
		r.reported = map[string]string{}
	}
	r.reported[uid] = what
}

func (r *reports) Prepared(record *checkpoint.Record) { r.report(record.Claim.UID, "prepared") }

func (r *reports) Refused(rc *resourceapi.ResourceClaim, cause error) {
	reason := cause.Error()
	r.report(string(rc.UID), reason)
}

// done is the record of a claim with two devices, one of them shared.
func done(uid string) *checkpoint.Record {
	return &checkpoint.Record{
		Claim: checkpoint.Claim{UID: uid, Namespace: "default", Name: "claim-" + uid}, State: checkpoint.Done,
		Results: []checkpoint.Result{
			{Request: "gpu/big", Pool: "n0", Device: "gpu-bbbbbbbb", Type: gpu.TypeGPU, GPUUUID: "GPU-bbbbbbbb-1"},
			{Request: "see", Pool: "n0", Device: "gpu-aaaaaaaa-monitor", ShareID: "share-1", Admin: true, Type: gpu.TypeMonitor, GPUUUID: "GPU-aaaaaaaa-1"},
		},
		CDI: checkpoint.CDI{Kind: "k8s.gpu.prism.dev/claim", Devices: []string{uid + "-big", uid + "-see"}},
	}
}

func claimOf(uid string) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim-" + uid, UID: types.UID(uid)}}
}

func object(uid string) kubeletplugin.NamespacedObject {
	return kubeletplugin.NamespacedObject{NamespacedName: types.NamespacedName{Namespace: "default", Name: "claim-" + uid}, UID: types.UID(uid)}
}

// measured counts calls, by method and outcome.
type measured struct {
	mu     sync.Mutex
	counts map[string]int
}

func (m *measured) count(method string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts == nil {
		m.counts = map[string]int{}
	}
	m.counts[fmt.Sprintf("%s failed=%t", method, err != nil)]++
}

func (m *measured) Prepared(_ time.Duration, err error) { m.count("prepare", err) }

func (m *measured) Unprepared(_ time.Duration, err error) { m.count("unprepare", err) }

func TestHandler_SeveralClaims_OneAnswerEach(t *testing.T) {
	t.Parallel()
	tx, status := &transaction{records: map[string]*checkpoint.Record{"a": done("a"), "none": {Claim: checkpoint.Claim{UID: "none"}}}}, &reports{}
	metrics := &measured{}
	p := New(Options{Transaction: tx, Reports: status, Metrics: metrics, Fatal: func(err error) { t.Error(err) }})
	results, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claimOf("a"), claimOf("b"), claimOf("none")})
	require.NoError(t, err, "one claim's failure is no other's")
	require.Len(t, results, 3)
	assert.Equal(t, kubeletplugin.PrepareResult{Devices: []kubeletplugin.Device{
		{
			Requests: []string{"gpu/big"}, PoolName: "n0", DeviceName: "gpu-bbbbbbbb",
			CDIDeviceIDs: []string{"k8s.gpu.prism.dev/claim=a-big"},
		},
		{
			Requests: []string{"see"}, PoolName: "n0", DeviceName: "gpu-aaaaaaaa-monitor", ShareID: ptr.To(types.UID("share-1")),
			CDIDeviceIDs: []string{"k8s.gpu.prism.dev/claim=a-see"},
		},
	}}, results["a"])
	require.EqualError(t, results["b"].Err, "claim b is not welcome")
	assert.Empty(t, results["b"].Devices)
	assert.Equal(t, kubeletplugin.PrepareResult{Devices: []kubeletplugin.Device{}}, results["none"])
	assert.Equal(t, map[string]string{"a": "prepared", "none": "prepared", "b": "claim b is not welcome"}, status.reported)

	failures, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{object("a"), object("b")})
	require.NoError(t, err)
	require.Len(t, failures, 2)
	require.NoError(t, failures["a"])
	require.EqualError(t, failures["b"], "claim b stays")
	assert.Equal(t, []string{"a"}, tx.unprepared)
	assert.Equal(t, map[string]int{
		"prepare failed=false": 2, "prepare failed=true": 1, "unprepare failed=false": 1, "unprepare failed=true": 1,
	}, metrics.counts)
}

// TestHandler_ClaimsOfOneCall_RunConcurrently: each waits until all have begun.
func TestHandler_ClaimsOfOneCall_RunConcurrently(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 8} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		var begun sync.WaitGroup
		begun.Add(n)
		tx := &transaction{records: map[string]*checkpoint.Record{}, during: func() {
			begun.Done()
			all := make(chan struct{})
			go func() { begun.Wait(); close(all) }()
			select {
			case <-all:
			case <-ctx.Done():
				t.Error("claims wait for each other")
			}
		}}
		p := New(Options{Transaction: tx, Reports: &reports{}, Metrics: &measured{}})
		var claims []*resourceapi.ResourceClaim
		var objects []kubeletplugin.NamespacedObject
		for i := range n {
			uid := fmt.Sprintf("uid-%d", i)
			tx.records[uid] = done(uid)
			claims, objects = append(claims, claimOf(uid)), append(objects, object(uid))
		}
		results, err := p.PrepareResourceClaims(ctx, claims)
		require.NoError(t, err)
		for _, rc := range claims {
			require.NoError(t, results[rc.UID].Err)
			assert.Equal(t, []string{"k8s.gpu.prism.dev/claim=" + string(rc.UID) + "-big"}, results[rc.UID].Devices[0].CDIDeviceIDs)
		}
		begun.Add(n)
		_, err = p.UnprepareResourceClaims(ctx, objects)
		require.NoError(t, err)
	}
}

func TestHandler_DeviceMetadataOn_AttributesAnswered(t *testing.T) {
	t.Parallel()
	attributes := map[string]resourceapi.DeviceAttribute{"productName": {StringValue: ptr.To("NVIDIA H100 80GB HBM3")}}
	describe := func(pool, device string) map[string]resourceapi.DeviceAttribute {
		assert.Equal(t, "n0", pool)
		if device == "gpu-bbbbbbbb" {
			return attributes
		}
		return nil
	}
	p := New(Options{
		Transaction: &transaction{records: map[string]*checkpoint.Record{"a": done("a")}}, Reports: &reports{}, Metrics: &measured{},
		Metadata: DeviceMetadata{Describe: describe},
	})
	results, err := p.PrepareResourceClaims(t.Context(), []*resourceapi.ResourceClaim{claimOf("a")})
	require.NoError(t, err)
	version := resourceapi.DeviceAttribute{IntValue: ptr.To[int64](1)}
	assert.Equal(t, map[string]resourceapi.DeviceAttribute{"productName": attributes["productName"], "schemaVersion": version},
		results["a"].Devices[0].Metadata.Attributes)
	assert.Equal(t, map[string]resourceapi.DeviceAttribute{"schemaVersion": version}, results["a"].Devices[1].Metadata.Attributes,
		"a device that is not published now has no other")
	assert.Len(t, attributes, 1, "what is published stays as it is")
}

func TestHandler_HandleError_OnlyFatalOnesEndTheProcess(t *testing.T) {
	t.Parallel()
	var fatal []error
	p := New(Options{Fatal: func(err error) { fatal = append(fatal, err) }})
	p.HandleError(t.Context(), fmt.Errorf("a field was dropped: %w", kubeletplugin.ErrRecoverable), "publishing")
	assert.Empty(t, fatal)
	cause := errors.New("the socket is gone")
	p.HandleError(t.Context(), cause, "serving")
	require.Len(t, fatal, 1)
	require.ErrorIs(t, fatal[0], cause)
	require.EqualError(t, fatal[0], "serving: the socket is gone")
	require.ErrorIs(t, p.WatchHealthStatus(t.Context(), nil), kubeletplugin.ErrHealthNotSupported)
}
