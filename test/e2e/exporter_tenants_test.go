package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/prism-gpu/prism/pkg/cdi"
	"github.com/prism-gpu/prism/pkg/podresources"
)

// Containers of a pod that makes the kubelet's list long, and how often each names its claim. The API server takes no longer pods.
const listedContainers, listedTimes = 160, 64

// TestExporter_TenantMakesListLong_PodsNamed: one pod makes the kubelet's list longer than a message of gRPC may be by default. The exporter still
// names each pod with its use, and the plugin still finds every claim.
func TestExporter_TenantMakesListLong_PodsNamed(t *testing.T) {
	ns := inParallel(t, 2)
	ns.createListed("long")
	socket := filepath.Join(filepath.Dir(ns.variable("PRISM_NODE_0_KUBELET_PLUGINS")), "pod-resources/kubelet.sock")
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	eventually(t, startLimit, func() error {
		list, err := kubelet.NewPodResourcesListerClient(connection).List(t.Context(), &kubelet.ListPodResourcesRequest{}, grpc.MaxCallRecvMsgSize(1<<30))
		if err == nil && proto.Size(list) <= 4<<20 {
			err = fmt.Errorf("the kubelet's list has %d bytes", proto.Size(list))
		}
		return err
	})
	began := time.Now()
	ns.apply("whole-gpu/pod.yaml")
	g := &ns.grantedTo(ns.ready("whole-gpu"), "gpu")[0]
	its := use{"whole-gpu", 2, 60}
	ns.works(its)
	ns.usedBy(began, g, its)
	found, err := podresources.Client{Socket: socket, CDIKind: cdi.Kind(driverName)}.Containers(t.Context())
	require.NoError(t, err)
	of := map[string]int{}
	for _, each := range found.Uses {
		if each.Namespace == ns.name {
			of[each.Pod]++
		}
	}
	require.Equal(t, map[string]int{"whole-gpu": 1, "long": listedContainers + 1}, of, "each claim of a container once")
}

// createListed creates a pod of which only the first container starts. The kubelet lists what the others have all the same.
func (ns *namespace) createListed(name string) {
	ns.t.Helper()
	w := workload{name: name, ref: "gpu", request: request{class: gpuClass}}
	objects := w.objects()
	pod := objects[1].(*corev1.Pod) //nolint:forcetypeassert // as documented
	always := corev1.ContainerRestartPolicyAlways
	for i := range listedContainers {
		container := pod.Spec.Containers[0]
		container.Name, container.RestartPolicy = fmt.Sprint("c", i), &always
		container.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}, FailureThreshold: 10000}
		container.Resources.Claims = nil
		for request := range listedTimes {
			container.Resources.Claims = append(container.Resources.Claims, corev1.ResourceClaim{Name: "gpu", Request: fmt.Sprint("r", request)})
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
	}
	for _, object := range objects {
		text, err := json.Marshal(object)
		require.NoError(ns.t, err)
		require.NoError(ns.t, ns.createText(string(text)))
	}
}
