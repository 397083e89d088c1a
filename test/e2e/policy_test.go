package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// TestWholeResourceSlices_OtherNodes_Denied: with the token of its own pod, a plugin writes only its own node's ResourceSlices, and only in
// its own pools.
func TestWholeResourceSlices_OtherNodes_Denied(t *testing.T) {
	ns := inParallel(t, 0)
	bound := ns.as(ns.token("--bound-object-kind", "Pod", "--bound-object-name", ns.plugin(t).Name))
	unbound := ns.as(ns.token())
	const foreignPool = "the plugin of node 'n0' may not write ResourceSlices of pool '"
	for _, c := range []struct {
		name               string
		as                 []string
		node, driver, pool string
		denied             string
	}{
		{"own", bound, nodeName, driverName, nodeName, ""},
		{"own-gpu", bound, nodeName, driverName, nodeName + "/gpu-0", ""},
		{"other-node", bound, "n7", driverName, nodeName, "the plugin of node 'n0' may not write ResourceSlices of node 'n7'"},
		{"all-nodes", bound, "", driverName, nodeName, "the plugin of node 'n0' may not write ResourceSlices of the whole cluster"},
		{"other-driver", bound, nodeName, "gpu.example.com", nodeName, "may not write ResourceSlices of driver 'gpu.example.com'"},
		{"no-node", unbound, nodeName, driverName, nodeName, "the token of this user is not bound to a node"},
		{"other-pool", bound, nodeName, driverName, "n7", foreignPool + "n7'"},
		{"other-pool-gpu", bound, nodeName, driverName, "n7/gpu-0", foreignPool + "n7/gpu-0'"},
		{"longer-name", bound, nodeName, driverName, "n01", foreignPool + "n01'"},
		{"longer-name-gpu", bound, nodeName, driverName, "n01/gpu-0", foreignPool + "n01/gpu-0'"},
	} {
		_, err := ns.run(resourceSliceOf(t, c.name, c.node, c.driver, c.pool), append(c.as, "create", "--dry-run=server", "--filename=-")...)
		if c.denied == "" {
			assert.NoError(t, err, c.name)
			continue
		}
		assert.ErrorContains(t, err, c.denied, c.name)
		assert.ErrorContains(t, err, "ValidatingAdmissionPolicy", c.name)
	}
}

// TestWholeResourceSlices_ForeignOne_Kept: a plugin can neither update nor delete ResourceSlices of another node. It removes a
// ResourceSlice that names its own node, in any pool.
func TestWholeResourceSlices_ForeignOne_Kept(t *testing.T) {
	ns := inParallel(t, 0)
	bound := ns.as(ns.token("--bound-object-kind", "Pod", "--bound-object-name", ns.plugin(t).Name))
	foreign := resourceSliceOf(t, ns.name, "n7", driverName, "n7")
	_, err := ns.run(foreign, ns.kubectl("create", "--filename=-")...)
	require.NoError(t, err)
	t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "--ignore-not-found", "resourceslice", ns.name)...) })

	const denied = "the plugin of node 'n0' may not write ResourceSlices of node 'n7'"
	_, err = ns.run("", append(bound, "delete", "--wait=false", "resourceslice", ns.name)...)
	assert.ErrorContains(t, err, denied)
	stored := ns.must(t, ns.kubectl("get", "--output=json", "resourceslice", ns.name)...)
	_, err = ns.run(strings.ReplaceAll(stored, `"gpu-0"`, `"gpu-1"`), append(bound, "replace", "--filename=-")...)
	assert.ErrorContains(t, err, denied)

	inPool := ns.name + "-in-pool"
	empty := strings.Replace(resourceSliceOf(t, inPool, nodeName, driverName, "n7"), `{"name":"gpu-0"}`, "", 1) // no pod gets a device of it
	_, err = ns.run(empty, ns.kubectl("create", "--filename=-")...)
	require.NoError(t, err, "the administrator may")
	t.Cleanup(func() { ns.must(t, ns.kubectl("delete", "--ignore-not-found", "resourceslice", inPool)...) })
	eventually(t, startLimit, func() error {
		found, err := ns.run("", ns.kubectl("get", "--ignore-not-found", "--output=name", "resourceslice", inPool)...)
		if err == nil && found != "" {
			err = fmt.Errorf("%s of pool n7 is still there", strings.TrimSpace(found))
		}
		return err
	})
}

// TestWholeClaimStatus_NotOfOwnNode_Denied: a plugin writes only the status of claims with devices of its node.
func TestWholeClaimStatus_NotOfOwnNode_Denied(t *testing.T) {
	ns := inParallel(t, 0)
	require.NoError(t, ns.createText(`{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "waiting"}, "spec": {}}`))
	// kubectl patch would read the status first, which a plugin may not.
	write := func(as rest.Interface) error {
		return as.Patch(types.MergePatchType).AbsPath("/apis/resource.k8s.io/v1/namespaces", ns.name, "resourceclaims/waiting/status").Param("dryRun", "All").
			Body([]byte(`{"status": {"devices": []}}`)).Do(t.Context()).Error()
	}
	bound := ns.clientWith(ns.token("--bound-object-kind", "Pod", "--bound-object-name", ns.plugin(t).Name))
	require.ErrorContains(t, write(bound), "the plugin of node 'n0' may not write the status of a claim without devices of driver '"+driverName+"' on that node")
	require.ErrorContains(t, write(ns.clientWith(ns.token())), "the token of this user is not bound to a node")
	require.NoError(t, write(ns.reader), "the administrator may")
}

// TestWholeDeviceClasses_NotManaged_Denied: the controller writes the DeviceClasses that it manages, and neither the chart's nor a user's.
func TestWholeDeviceClasses_NotManaged_Denied(t *testing.T) {
	ns := inParallel(t, 0)
	controller := ns.as(ns.tokenOf(controllerName))
	create := func(name, labels string) error {
		text := `{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "` + name + `", "labels": {` + labels + `}}, "spec": {}}`
		_, err := ns.run(text, append(slices.Clone(controller), "create", "--dry-run=server", "--filename=-")...)
		return err
	}
	const managed = `"app.kubernetes.io/managed-by": "prism-controller", "prism.dev/driver": "` + driverName + `"`
	require.NoError(t, create("policy-test."+driverName, managed))
	require.ErrorContains(t, create("policy-test."+driverName, ""), "which lacks the labels app.kubernetes.io/managed-by: prism-controller")
	require.ErrorContains(t, create("policy-test.example.com", managed), "whose name does not end with ."+driverName)
	_, err := ns.run("", append(controller, "delete", "--dry-run=server", "deviceclass", driverName)...)
	require.ErrorContains(t, err, "the controller of driver '"+driverName+"' may not write DeviceClass '"+driverName+"'")
}

// token returns a token of the plugin's service account.
func (ns *namespace) token(binding ...string) string {
	ns.t.Helper()
	return ns.tokenOf(pluginName, binding...)
}

// tokenOf returns a token of a service account of Prism.
func (ns *namespace) tokenOf(account string, binding ...string) string {
	ns.t.Helper()
	return ns.must(ns.t, ns.kubectl(append([]string{"create", "token", "--namespace", system, account}, binding...)...)...)
}

// as returns a kubectl command line for the user of the token; it must not contain the administrator's certificate.
func (ns *namespace) as(token string) []string {
	ns.t.Helper()
	var config map[string]any
	out := ns.must(ns.t, ns.kubectl("config", "view", "--raw", "--flatten", "--minify", "--output=json")...)
	require.NoError(ns.t, json.Unmarshal([]byte(out), &config))
	users, ok := config["users"].([]any)
	require.True(ns.t, ok && len(users) == 1)
	user, ok := users[0].(map[string]any)
	require.True(ns.t, ok)
	user["user"] = map[string]string{"token": token}
	text, err := json.Marshal(config)
	require.NoError(ns.t, err)
	file := filepath.Join(ns.t.TempDir(), "kubeconfig")
	require.NoError(ns.t, os.WriteFile(file, text, 0o600))
	return []string{ns.kubectl()[0], "--kubeconfig", file}
}

// resourceSliceOf returns a ResourceSlice of one node, or of all nodes if the name is empty, in a pool.
func resourceSliceOf(t *testing.T, name, node, driver, pool string) string {
	t.Helper()
	slice := resourceapi.ResourceSlice{
		TypeMeta:   metav1.TypeMeta{APIVersion: "resource.k8s.io/v1", Kind: "ResourceSlice"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, Pool: resourceapi.ResourcePool{Name: pool, Generation: 1, ResourceSliceCount: 1},
			Devices: []resourceapi.Device{{Name: "gpu-0"}},
		},
	}
	if all := true; node == "" {
		slice.Spec.AllNodes = &all
	} else {
		slice.Spec.NodeName = &node
	}
	text, err := json.Marshal(slice)
	require.NoError(t, err)
	return string(text)
}
