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

	"github.com/prism-gpu/prism/pkg/plugin/cdi"
	"github.com/prism-gpu/prism/pkg/podresources"
)

// Pods that make the kubelet's list long, and the number of their containers.
const listedPods, listedContainers = 10, 600

// TestExporter_TenantMakesListLong_PodsNamed: pods of a tenant make the kubelet's list longer than gRPC's default limit for a message. The
// exporter still names each pod with its use, and the plugin finds each claim of a container.
func TestExporter_TenantMakesListLong_PodsNamed(t *testing.T) {
	ns := inParallel(t, 4)
	ns.createListed()
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
	want := map[string]int{"whole-gpu": 1}
	for pod := range listedPods {
		want[fmt.Sprint("long-", pod)] = listedContainers + 1
	}
	require.Equal(t, want, of)
}

// createListed creates pods with one claim, of which only the first container starts. The kubelet still lists the devices of the others.
func (ns *namespace) createListed() {
	ns.t.Helper()
	always := corev1.ContainerRestartPolicyAlways
	for i := range listedPods {
		w := workload{name: fmt.Sprint("long-", i), ref: "gpus", named: true, request: request{class: gpuClass, count: 3}}
		objects := w.objects()
		pod := objects[1].(*corev1.Pod) //nolint:forcetypeassert // as documented
		pod.Spec.ResourceClaims[0].ResourceClaimName = new("long-0")
		for j := range listedContainers {
			container := pod.Spec.Containers[0]
			container.Name, container.RestartPolicy = fmt.Sprint("c", j), &always
			container.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}, FailureThreshold: 10000}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
		}
		if i > 0 {
			objects = objects[1:]
		}
		for _, object := range objects {
			text, err := json.Marshal(object)
			require.NoError(ns.t, err)
			require.NoError(ns.t, ns.createText(string(text)))
		}
	}
}
