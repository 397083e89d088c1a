package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const adminLabel = "resource.kubernetes.io/admin-access=true"

func TestWholeMonitorWithoutAdminAccess(t *testing.T) {
	ns := beside(t, 0)
	ns.apply("monitor/without-admin-access.yaml")
	ns.isRefused("curious", "gpu", "it is given with admin access only", "set adminAccess: true on the request", adminLabel)
}

func TestWholeMonitorNeedsLabel(t *testing.T) {
	ns := beside(t, 0)
	_, err := ns.try("apply", "--filename", ns.spec("monitor/pod.yaml"))
	require.ErrorContains(t, err, "admin access to devices requires")
}

// monitors checks that a pod with admin access sees every GPU of the node.
func (ns *namespace) monitors() {
	ns.t.Helper()
	ns.do("label", "namespace", ns.name, adminLabel)
	ns.apply("monitor/pod.yaml")
	grants := ns.grantedTo(ns.ready("monitor"), "gpus")
	boards, err := ns.boards()
	require.NoError(ns.t, err)
	require.Len(ns.t, grants, len(boards))
	for _, g := range grants {
		assert.Equal(ns.t, "monitor", g.Type)
	}
	ns.sees("monitor", "main", grants...)
}
