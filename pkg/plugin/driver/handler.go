package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/plugin/prepare"
)

// Transaction prepares and unprepares claims; prepare.Transaction implements it.
type Transaction interface {
	Prepare(ctx context.Context, rc *resourceapi.ResourceClaim) (*checkpoint.Record, error)
	Unprepare(ctx context.Context, uid string) error
}

// Reports receives the content of a claim's status. It never blocks and never fails: the answer does not wait for it.
type Reports interface {
	// Prepared: the claim's devices are usable.
	Prepared(r *checkpoint.Record)
	// Refused: the claim's devices cannot be used, with the reason.
	Refused(rc *resourceapi.ResourceClaim, cause error)
}

// Metrics measures the kubelet's calls, one claim at a time; *diagnostics.Metrics implements it.
type Metrics interface {
	Prepared(took time.Duration, err error)
	Unprepared(took time.Duration, err error)
}

// Options are the ports of a Handler.
type Options struct {
	Transaction Transaction
	Reports     Reports
	Metrics     Metrics
	Metadata    DeviceMetadata
	// Health is the health of the devices; nil: it is not reported.
	Health *Health
	// Fatal is called with errors after which the process cannot answer the kubelet any more.
	Fatal func(error)
}

// Handler answers the kubelet. Create one with New and pass it to kubeletplugin.Start.
type Handler struct{ options Options }

// DeviceMetadata are the files with device attributes that the kubelet-plugin library creates for claims.
type DeviceMetadata struct {
	// Describe returns the content of a device's file; nil if there are no such files.
	Describe Describe
	// Files is their location, even if they are disabled.
	Files MetadataFiles
}

// Describe returns the published attributes of a device, nil for a device that is not advertised now.
type Describe func(pool, device string) map[string]resourceapi.DeviceAttribute

var _ kubeletplugin.DRAPlugin = &Handler{}

// New builds a Handler.
func New(options Options) *Handler { return &Handler{options: options} }

// PrepareResourceClaims prepares the claims of one pod concurrently: they use different GPUs, and claims for the same one wait for its
// lock. A failure of one claim does not affect the others.
func (h *Handler) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := make([]kubeletplugin.PrepareResult, len(claims))
	parallel(len(claims), func(i int) { results[i] = h.prepare(ctx, claims[i]) })
	byUID := make(map[types.UID]kubeletplugin.PrepareResult, len(claims))
	for i, rc := range claims {
		byUID[rc.UID] = results[i]
	}
	return byUID, nil
}

func (h *Handler) prepare(ctx context.Context, rc *resourceapi.ResourceClaim) kubeletplugin.PrepareResult {
	logger := klog.FromContext(ctx).WithValues("claim", klog.KObj(rc), "claimUID", rc.UID)
	start := time.Now()
	r, err := h.options.Transaction.Prepare(klog.NewContext(ctx, logger), rc)
	h.options.Metrics.Prepared(time.Since(start), err)
	if err != nil {
		logger.Error(err, "Claim was not prepared", prepare.LogValues(err)...)
		h.options.Reports.Refused(rc, err)
		return kubeletplugin.PrepareResult{Err: err}
	}
	logger.V(2).Info("Claim is prepared", "devices", r.CDI.Devices)
	h.options.Reports.Prepared(r)
	return kubeletplugin.PrepareResult{Devices: answer(r, h.options.Metadata.Describe)}
}

// UnprepareResourceClaims undoes the preparation of the claims.
func (h *Handler) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	results := make([]error, len(claims))
	parallel(len(claims), func(i int) { results[i] = h.unprepare(ctx, claims[i]) })
	byUID := make(map[types.UID]error, len(claims))
	for i, c := range claims {
		byUID[c.UID] = results[i]
	}
	return byUID, nil
}

func (h *Handler) unprepare(ctx context.Context, c kubeletplugin.NamespacedObject) error {
	logger := klog.FromContext(ctx).WithValues("claim", c.NamespacedName, "claimUID", c.UID)
	start := time.Now()
	err := h.options.Transaction.Unprepare(klog.NewContext(ctx, logger), string(c.UID))
	h.options.Metrics.Unprepared(time.Since(start), err)
	if err == nil && h.options.Metadata.Describe == nil {
		err = h.options.Metadata.Files.Remove(c.NamespacedName, c.UID)
	}
	if err != nil {
		logger.Error(err, "Claim was not unprepared")
		return err
	}
	logger.V(2).Info("Claim is unprepared")
	return nil
}

// HandleError ends the process if the library cannot serve the kubelet any more.
func (h *Handler) HandleError(ctx context.Context, err error, msg string) {
	klog.FromContext(ctx).Error(err, msg)
	if !errors.Is(err, kubeletplugin.ErrRecoverable) {
		h.options.Fatal(fmt.Errorf("%s: %w", msg, err))
	}
}

// parallel runs do(0) to do(n-1) concurrently and returns when all have returned.
func parallel(n int, do func(i int)) {
	if n == 1 {
		do(0)
		return
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

// answer turns a record into the answer to the kubelet: one device per allocation result, in their order.
func answer(r *checkpoint.Record, describe Describe) []kubeletplugin.Device {
	devices := make([]kubeletplugin.Device, 0, len(r.Results))
	for i := range r.Results {
		result := &r.Results[i]
		d := kubeletplugin.Device{
			Requests: []string{result.Request}, PoolName: result.Pool, DeviceName: result.Device,
			CDIDeviceIDs: []string{r.CDI.Kind + "=" + r.CDI.Devices[i]},
		}
		if result.ShareID != "" {
			share := types.UID(result.ShareID)
			d.ShareID = &share
		}
		if describe != nil {
			d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: versioned(describe(result.Pool, result.Device))}
		}
		devices = append(devices, d)
	}
	return devices
}
