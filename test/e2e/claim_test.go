package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// prepareFailed is the reason of the kubelet's Event if it cannot prepare a claim.
const prepareFailed = "FailedPrepareDynamicResources"

// grant is an allocated device as the claim's status describes it.
type grant struct {
	request string

	UUID          string `json:"uuid"`
	Type          string `json:"type"`
	Index         int    `json:"index"`
	Minor         int    `json:"minor"`
	PCIBusID      string `json:"pciBusID"`
	ProductName   string `json:"productName"`
	DriverVersion string `json:"driverVersion"`

	// Only in shares.
	Replicas  int    `json:"replicas"`
	ShareName string `json:"shareName"`

	// Only in MPS shares, and in devices whose claims share them with MPS.
	MPS               mpsUse `json:"mps"`
	MemoryEnforcement string `json:"memoryEnforcement"`

	// Only in MIG devices.
	ParentUUID string    `json:"parentUUID"`
	Profile    string    `json:"profile"`
	Placement  placement `json:"placement"`
}

// mpsUse describes the use of a device with MPS.
type mpsUse struct {
	Daemon                 string `json:"daemon"`
	Memory                 string `json:"memory"`
	ActiveThreadPercentage int    `json:"activeThreadPercentage"`
	MultiUser              bool   `json:"multiUser"`
}

// gpu returns the UUID of the physical GPU.
func (g *grant) gpu() string {
	if g.ParentUUID != "" {
		return g.ParentUUID
	}
	return g.UUID
}

// claimOf returns the claim behind a claim name of the pod.
func (ns *namespace) claimOf(pod *corev1.Pod, ref string) *resourceapi.ResourceClaim {
	ns.t.Helper()
	for i := range pod.Spec.ResourceClaims {
		if c := &pod.Spec.ResourceClaims[i]; c.Name == ref && c.ResourceClaimName != nil {
			return ns.claim(*c.ResourceClaimName)
		}
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.Name == ref && status.ResourceClaimName != nil {
			return ns.claim(*status.ResourceClaimName)
		}
	}
	require.Failf(ns.t, "no claim", "missing claim %[2]s of pod %[1]s", pod.Name, ref)
	return nil
}

func (ns *namespace) claim(name string) *resourceapi.ResourceClaim {
	ns.t.Helper()
	claim := &resourceapi.ResourceClaim{}
	require.NoError(ns.t, ns.read(claim, "resourceclaim", name))
	ns.claims[string(claim.UID)] = true
	return claim
}

// granted waits until every device of the claim is Ready in its status, and returns the devices in the order of the allocation.
func (ns *namespace) granted(name string) []grant {
	ns.t.Helper()
	var grants []grant
	eventually(ns.t, startLimit, func() (err error) {
		grants, err = readGrants(ns.claim(name))
		return err
	})
	for _, g := range grants {
		ns.checkHardware(g)
	}
	return grants
}

// grantedTo calls granted for a claim name of a pod.
func (ns *namespace) grantedTo(pod *corev1.Pod, ref string) []grant {
	ns.t.Helper()
	return ns.granted(ns.claimOf(pod, ref).Name)
}

func readGrants(claim *resourceapi.ResourceClaim) ([]grant, error) {
	if claim.Status.Allocation == nil {
		return nil, errors.New("the claim is not allocated")
	}
	grants := []grant{}
	for _, result := range claim.Status.Allocation.Devices.Results {
		entry, condition := statusOf(claim, &result)
		if condition == nil || condition.Status != metav1.ConditionTrue {
			return nil, fmt.Errorf("device %s of claim %s is not Ready: %+v", result.Device, claim.Name, condition)
		}
		g := grant{request: result.Request}
		if err := json.Unmarshal(entry.Data.Raw, &g); err != nil {
			return nil, fmt.Errorf("reading the data of device %s: %w", result.Device, err)
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// statusOf returns a device's data in the status of the claim, or nil without any.
func statusOf(claim *resourceapi.ResourceClaim, result *resourceapi.DeviceRequestAllocationResult) (*resourceapi.AllocatedDeviceStatus, *metav1.Condition) {
	for i := range claim.Status.Devices {
		entry := &claim.Status.Devices[i]
		if entry.Driver == result.Driver && entry.Pool == result.Pool && entry.Device == result.Device {
			return entry, meta.FindStatusCondition(entry.Conditions, "Ready")
		}
	}
	return nil, nil
}

// refused waits until the status of every device of the claim is Ready=False, and returns the message.
func (ns *namespace) refused(name string, within time.Duration) string {
	ns.t.Helper()
	sentences := map[string]bool{}
	eventually(ns.t, within, func() error {
		claim := ns.claim(name)
		if claim.Status.Allocation == nil {
			return fmt.Errorf("claim %s is not allocated", name)
		}
		for _, result := range claim.Status.Allocation.Devices.Results {
			_, condition := statusOf(claim, &result)
			if condition == nil || condition.Status != metav1.ConditionFalse {
				return fmt.Errorf("device %s of claim %s is not refused: %+v", result.Device, name, condition)
			}
			sentences[condition.Message] = true
		}
		return nil
	})
	require.Len(ns.t, sentences, 1, "the same sentence for every device")
	for sentence := range sentences {
		return sentence
	}
	return ""
}

// checkHardware compares a device in a status with the hardware.
func (ns *namespace) checkHardware(g grant) {
	ns.t.Helper()
	if g.Type == "mig" {
		ns.checkMIGDevice(g)
	}
	h, err := ns.hardware()
	require.NoError(ns.t, err)
	for _, b := range h.GPUs {
		if b.UUID == g.gpu() {
			require.Equal(ns.t, board{Ordinal: g.Index, Name: g.ProductName, UUID: g.gpu(), Minor: g.Minor, PCI: strings.ToLower(g.PCIBusID)}, b)
			require.Equal(ns.t, h.Driver.Version, g.DriverVersion)
			return
		}
	}
	require.Failf(ns.t, "unknown GPU", "the claim's status names GPU %s, which the node does not have", g.UUID)
}

func uuidsOf(grants ...grant) []string {
	uuids := make([]string, len(grants))
	for i := range grants {
		uuids[i] = grants[i].UUID
	}
	return uuids
}

// forRequest returns the grants of one request of a claim, subrequests included.
func forRequest(t *testing.T, grants []grant, request string) []grant {
	t.Helper()
	var its []grant
	for _, g := range grants {
		if base, _, _ := strings.Cut(g.request, "/"); base == request {
			its = append(its, g)
		}
	}
	require.NotEmpty(t, its, "request %s got no device", request)
	return its
}
