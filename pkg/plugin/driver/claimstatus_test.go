package driver

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/prism-gpu/prism/pkg/checkpoint"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/test/fakes"
)

// reported is the status of claim "a", with the devices of its record, after a report.
func reported(t *testing.T, node *gpu.Node, report func(ClaimStatus, *resourceapi.ResourceClaim)) []resourceapi.AllocatedDeviceStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	rc := claimOf("a")
	rc.Status.Allocation = &resourceapi.AllocationResult{}
	for _, r := range done("a").Results {
		result := resourceapi.DeviceRequestAllocationResult{Request: r.Request, Driver: "gpu.prism.dev", Pool: r.Pool, Device: r.Device}
		rc.Status.Allocation.Devices.Results = append(rc.Status.Allocation.Devices.Results, result)
	}
	client := fake.NewClientset(rc)
	statuses := kube.NewStatuses(kube.StatusesOptions{Client: client, DriverName: "gpu.prism.dev", OnError: func(_ kube.ClaimRef, err error) { t.Log(err) }})
	stop := fakes.Run(t, statuses.Run)
	defer stop()
	report(ClaimStatus{Statuses: statuses, Node: func() *gpu.Node { return node }}, rc)
	require.NoError(t, statuses.Drain(ctx))
	now, err := client.ResourceV1().ResourceClaims("default").Get(ctx, "claim-a", metav1.GetOptions{})
	require.NoError(t, err)
	return now.Status.Devices
}

func TestClaimStatus_Prepared_NamesTheGPUs(t *testing.T) {
	t.Parallel()
	node := &gpu.Node{Driver: gpu.Driver{Version: "580.95.05"}, GPUs: []gpu.GPU{{
		UUID: "GPU-bbbbbbbb-1", Index: 3, Minor: 4, PCI: gpu.PCI{BusID: "0000:5b:00.0"}, Product: gpu.Product{Name: "NVIDIA L40S"},
	}}}
	record := done("a")
	record.Results[1].ShareID, record.Results[1].PCIBusID = "", "0000:3b:00.0"
	devices := reported(t, node, func(s ClaimStatus, _ *resourceapi.ResourceClaim) { s.Prepared(record) })
	require.Len(t, devices, 2)
	for _, d := range devices {
		require.Len(t, d.Conditions, 1)
		assert.Equal(t, "Ready", d.Conditions[0].Type)
		assert.Equal(t, metav1.ConditionTrue, d.Conditions[0].Status)
		switch d.Device {
		case "gpu-bbbbbbbb":
			assert.JSONEq(t, `{"schemaVersion":1,"type":"gpu","uuid":"GPU-bbbbbbbb-1","index":3,"minor":4,"pciBusID":"0000:5b:00.0",
				"productName":"NVIDIA L40S","driverVersion":"580.95.05"}`, string(d.Data.Raw))
		case "gpu-aaaaaaaa-monitor":
			assert.Contains(t, string(d.Data.Raw), `"uuid":"GPU-aaaaaaaa-1"`, "of a GPU that has gone since, what the record knows")
			assert.Contains(t, string(d.Data.Raw), `"pciBusID":"0000:3b:00.0"`)
		default:
			t.Errorf("unexpected device %s", d.Device)
		}
	}
}

func TestClaimStatus_Monitor_ListsTheGPUs(t *testing.T) {
	t.Parallel()
	node := &gpu.Node{Driver: gpu.Driver{Version: "580.95.05"}, GPUs: []gpu.GPU{{UUID: "GPU-a"}, {UUID: "GPU-b", Index: 1}}}
	said, err := json.Marshal(identity(node, &checkpoint.Result{Request: "see", Pool: "n0/monitor", Device: "monitor", Admin: true, Type: gpu.TypeMonitor}))
	require.NoError(t, err)
	assert.JSONEq(t, `{"type":"monitor","gpus":["GPU-a","GPU-b"],"driverVersion":"580.95.05"}`, string(said))
}

func TestClaimStatus_Shares_CountReported(t *testing.T) {
	t.Parallel()
	record := done("a")
	record.Results[0].Share, record.Results[1].ShareID = &checkpoint.Share{Replicas: 4, Name: "gpu-shared"}, ""
	for _, d := range reported(t, &gpu.Node{}, func(s ClaimStatus, _ *resourceapi.ResourceClaim) { s.Prepared(record) }) {
		if d.Device == "gpu-bbbbbbbb" {
			assert.Contains(t, string(d.Data.Raw), `"replicas":4,`)
			assert.Contains(t, string(d.Data.Raw), `"shareName":"gpu-shared"`)
		} else {
			assert.NotContains(t, string(d.Data.Raw), "replicas")
		}
	}
}

func TestClaimStatus_StepData_MergedWithIdentity(t *testing.T) {
	t.Parallel()
	record := done("a")
	for _, d := range reported(t, &gpu.Node{}, func(s ClaimStatus, _ *resourceapi.ResourceClaim) {
		s.StepData = func(r *checkpoint.Record) []map[string]any {
			data := make([]map[string]any, len(r.Results))
			data[0] = map[string]any{"pipes": "/run/a", "type": "not the step's"}
			return data
		}
		s.Prepared(record)
	}) {
		if d.Device == record.Results[0].Device {
			assert.Contains(t, string(d.Data.Raw), `"pipes":"/run/a"`)
			assert.Contains(t, string(d.Data.Raw), `"type":"`+string(record.Results[0].Type)+`"`, "the identity counts first")
		} else {
			assert.NotContains(t, string(d.Data.Raw), "pipes")
		}
	}
}

func TestClaimStatus_Refused_ReasonReported(t *testing.T) {
	t.Parallel()
	devices := reported(t, &gpu.Node{}, func(s ClaimStatus, rc *resourceapi.ResourceClaim) { s.Refused(rc, errors.New("the sentence")) })
	require.Len(t, devices, 2)
	for _, d := range devices {
		require.Len(t, d.Conditions, 1)
		assert.Equal(t, metav1.ConditionFalse, d.Conditions[0].Status)
		assert.Equal(t, "the sentence", d.Conditions[0].Message)
	}
}
