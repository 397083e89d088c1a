package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
)

// validated is the last line of a successful validation.
const validated = "all validations are successful"

// TestValidate_WorkingNode_Successful: both by kubectl prism and by helm test, which leave nothing.
func TestValidate_WorkingNode_Successful(t *testing.T) {
	ns := inParallel(t, 2)
	report := ns.must(t, ns.prism("validate", nodeName, "--timeout", startLimit.String())...)
	t.Log(report)
	assert.True(t, strings.HasSuffix(strings.TrimSpace(report), validated), report)
	eventually(t, startLimit, func() error { return ns.validationsLeft(ns.name) })
	t.Log(ns.must(t, ns.helmLine("test", "prism", "--timeout", startLimit.String())...))
	eventually(t, startLimit, func() error { return ns.validationsLeft(system) })
}

// TestValidate_Interrupted_NothingLeft: an interrupt while the pod waits for a GPU deletes the pod and its claim.
func TestValidate_Interrupted_NothingLeft(t *testing.T) {
	needs(t, deviceTaints)
	ns := exclusive(t)
	ns.drained(t, nodeName, "--all")
	var output bytes.Buffer
	line := ns.prism("validate", nodeName, "--timeout", startLimit.String())
	validation := exec.Command(line[0], line[1:]...)
	validation.Stdout, validation.Stderr = &output, &output
	require.NoError(t, validation.Start())
	waits := func() error { return ns.validationsLeft(ns.name) }
	eventually(t, startLimit, func() error {
		if waits() == nil {
			return errors.New("the pod does not exist yet")
		}
		return nil
	})
	require.NoError(t, validation.Process.Signal(os.Interrupt))
	err := validation.Wait()
	t.Log(output.String())
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 1, exit.ExitCode())
	assert.NotContains(t, output.String(), validated)
	eventually(t, startLimit, waits)
}

// drained takes GPUs out of service until the end of the test.
func (ns *namespace) drained(t *testing.T, args ...string) string {
	t.Helper()
	t.Cleanup(func() { _, _ = ns.run("", ns.prism(append([]string{"gpu", "undrain"}, args[:2]...)...)...) }) // the test may have done it
	return ns.must(t, ns.prism(append([]string{"gpu", "drain"}, args...)...)...)
}

// validationsLeft returns an error if the namespace contains a pod or a claim of a validation.
func (c *cluster) validationsLeft(namespace string) error {
	var pods corev1.PodList
	var claims resourceapi.ResourceClaimList
	err := errors.Join(c.get(&pods, "pods", "--namespace", namespace), c.get(&claims, "resourceclaims", "--namespace", namespace))
	for i := range pods.Items {
		if strings.Contains(pods.Items[i].Name, "validate") {
			err = errors.Join(err, fmt.Errorf("pod %s is left", pods.Items[i].Name))
		}
	}
	for i := range claims.Items {
		if strings.Contains(claims.Items[i].Name, "validate") {
			err = errors.Join(err, fmt.Errorf("claim %s is left", claims.Items[i].Name))
		}
	}
	return err
}
