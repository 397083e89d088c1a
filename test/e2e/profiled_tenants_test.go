package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/prism-gpu/prism/test/images"
)

// holdsConnections opens connections to an address, waits until the server has closed all but the allowed number for one address, however
// long that takes, and prints how many are left.
const holdsConnections = `import select, socket, sys, time
held = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(200)]
while len(held) > int(sys.argv[3]):
    closed, _, _ = select.select(held, [], [])
    for s in closed:
        s.close()
    held = [s for s in held if s not in closed]
print("holds", len(held), flush=True)
time.sleep(3600)`

// admissionPort is the controller's port, and connectionsOfAddress its limit of connections for one address (pkg/listen.Admission).
const admissionPort, connectionsOfAddress = "9443", 16

// TestProfile_TenantTakesAll_OthersServed: a tenant holds connections to the controller, and requests reports as often as it can. This
// delays no answer to others, and their webhook answers.
func TestProfile_TenantTakesAll_OthersServed(t *testing.T) {
	ns := profiled(t, 1)
	other := newNamespace(t, ns.cluster)
	ns.createProfiled("owned", `{}`, nil, inPrograms("main", "python3", "/opt/facts.py"))
	r := ns.reportsOf("owned", 1, "Ready")[0]

	other.create(workload{
		name: "flood", image: images.ProgramsImage, command: []string{"python3", "-c", holdsConnections, other.controllerAddress(), admissionPort, fmt.Sprint(connectionsOfAddress)},
	})
	other.prints("flood", "main", fmt.Sprintf("holds %d\n", connectionsOfAddress))

	greedy, polite := other.client("greedy", other), ns.client("polite", ns)
	path := func(namespace string) string {
		return "/apis/" + reportsVersion + "/namespaces/" + namespace + "/reports"
	}
	ask := func(client rest.Interface, path string) error {
		return client.Get().AbsPath(path).MaxRetries(0).Do(context.Background()).Error()
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asking sync.WaitGroup
	refused := make(chan error, 1)
	for range 200 {
		asking.Go(func() {
			for ctx.Err() == nil {
				if err := ask(greedy, path(other.name)+"/none"); apierrors.IsTooManyRequests(err) {
					select {
					case refused <- err:
					default:
					}
				}
			}
		})
	}
	require.ErrorContains(t, <-refused, "too many concurrent requests", "one user is limited")
	for range 10 {
		require.NoError(t, ask(polite, path(ns.name)))
		require.NoError(t, ask(polite, path(ns.name)+"/"+r.Metadata.Name))
	}
	err := ns.retryUntilAnswered(func() error { return ns.createText(migWithInterval) }, "resourceclaim", "mig")
	ns.isDenied("mig", err, "GPUConfig.sharing with strategy TimeSlicing is not supported for a MIG device")
	stop()
	asking.Wait()
	ns.carriesOutOptions(r)
}

// carriesOutOptions deletes a report as a user with the role edit: as a dry run, and with the UID of another report.
func (ns *namespace) carriesOutOptions(r reportOf) {
	ns.t.Helper()
	line := ns.userWith("editor", "edit", ns)
	_, err := ns.run("", append(line, "delete", "--dry-run=server", "--namespace", ns.name, "reports.profiles.gpu.prism.dev", r.Metadata.Name)...)
	require.NoError(ns.t, err)
	_, err = ns.run(`{"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "other"}}`,
		append(line, "delete", "--raw", strings.TrimSuffix(contentPath(ns.name, r.Metadata.Name), "/content"), "--filename=-")...)
	require.ErrorContains(ns.t, err, "precondition failed")
	assert.Len(ns.t, ns.allReports(), 1)
}

// controllerAddress returns the IP of a pod of the controller.
func (ns *namespace) controllerAddress() string {
	ns.t.Helper()
	address := ""
	eventually(ns.t, startLimit, func() error {
		var pods corev1.PodList
		err := ns.get(&pods, "pods", "--namespace", system, "--selector", controllerSelector)
		if err == nil && (len(pods.Items) == 0 || pods.Items[0].Status.PodIP == "") {
			err = errors.New("missing address of the controller")
		}
		if err == nil {
			address = pods.Items[0].Status.PodIP
		}
		return err
	})
	return address
}

// client returns a client for a new user with the role edit in a namespace.
func (ns *namespace) client(name string, at *namespace) rest.Interface {
	ns.t.Helper()
	ns.do("create", "serviceaccount", name)
	at.do("create", "rolebinding", name, "--clusterrole", "edit", "--serviceaccount", ns.name+":"+name)
	return ns.clientWith(ns.do("create", "token", name))
}

// clientWith returns a client with a token.
func (ns *namespace) clientWith(token string) rest.Interface {
	ns.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", ns.variable("KUBECONFIG"))
	require.NoError(ns.t, err)
	config = rest.AnonymousClientConfig(config)
	config.BearerToken, config.QPS, config.Timeout = strings.TrimSpace(token), -1, readLimit
	client, err := kubernetes.NewForConfig(config)
	require.NoError(ns.t, err)
	return client.RESTClient()
}
