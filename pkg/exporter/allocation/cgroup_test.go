package allocation

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestContainerIDs_Cgroups_OutermostFirst(t *testing.T) {
	t.Parallel()
	a, b, c := id("a"), id("b"), id("c")
	for _, test := range []struct {
		name, cgroup string
		ids          []string
	}{
		{"v2, containerd, systemd", "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-" + a + ".scope", []string{a}},
		{"v2, containerd, cgroupfs", "0::/kubepods/burstable/pod1-2/" + a, []string{a}},
		{"v2, CRI-O, systemd", "0::/kubepods.slice/kubepods-pod1.slice/crio-" + a + ".scope/container", []string{a}},
		{"v2, CRI-O, cgroupfs", "0::/kubepods/pod1/crio-" + a, []string{a}},
		{"the monitor of CRI-O", "0::/kubepods.slice/kubepods-pod1.slice/crio-conmon-" + a + ".scope", nil},
		{"docker", "0::/system.slice/docker-" + a + ".scope", []string{a}},
		{"systemd's name taken for a path", "0::/kubepods-pod1.slice:cri-containerd:" + a, []string{a}},
		{"seen from another cgroup", "0::/../../pod2/" + a, []string{a}},
		{"v1", "12:memory:/kubepods/pod1/" + a + "\n11:cpu,cpuacct:/kubepods/pod1/" + a + "\n1:name=systemd:/kubepods/pod1/" + a + "\n0::/\n", []string{a}},
		{"v1 of different containers", "12:memory:/kubepods/pod1/" + a + "\n11:cpu:/kubepods/pod1/" + b, []string{}},
		{"v1, a cgroup of its own in one hierarchy", "12:memory:/kubepods/pod1/" + a + "/" + b + "\n11:cpu:/kubepods/pod1/" + a, []string{a, b}},
		{"nested", "0::/docker/" + a + "/kubelet/kubepods/pod1/" + b + "/" + c, []string{a, b, c}},
		{"twice", "0::/" + a + "/" + a, []string{a}},
		{"the host", "0::/system.slice/sshd.service\n", nil},
		{"no id: too short", "0::/kubepods/pod1/" + a[1:], nil},
		{"no id: too long", "0::/kubepods/pod1/" + a + "a", nil},
		{"no id: upper case", "0::/kubepods/pod1/" + strings.ToUpper(a), nil},
		{"no line", "nonsense", nil},
		{"empty", "", nil},
		{"a path with colons", "0::/a:b/cri-containerd-" + a + ".scope", []string{a}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, test.ids, containerIDs([]byte(test.cgroup)))
		})
	}
	deep := containerIDs([]byte("0::/" + a + strings.Repeat("/x/"+b+"/"+c, 1000)))
	assert.Equal(t, []string{a, b, c}, deep)
}

func FuzzContainerIDs(f *testing.F) {
	for _, cgroup := range []string{
		"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id("a") + ".scope",
		"12:memory:/kubepods/pod1/" + id("a") + "\n11:cpu:/kubepods/pod1/" + id("a") + "/" + id("b"),
		"0::/../" + id("a") + "/crio-conmon-" + id("b") + ".scope", "0::", ":::", "\n\n", "0::/" + id("A"),
	} {
		f.Add(cgroup)
	}
	f.Fuzz(func(t *testing.T, cgroup string) {
		ids := containerIDs([]byte(cgroup))
		assert.LessOrEqual(t, len(ids), mostNested)
		at := 0
		for _, id := range ids {
			assert.Len(t, id, idLength)
			assert.Empty(t, strings.Trim(id, "0123456789abcdef"))
			assert.Contains(t, cgroup[at:], id)
		}
		if len(ids) == 0 {
			return
		}
		// Cgroups that a container creates below its own come after it.
		nested := containerIDs([]byte(strings.TrimRight(strings.SplitN(cgroup, "\n", 2)[0], "/") + "/" + id("0")))
		if first := containerIDs([]byte(strings.SplitN(cgroup, "\n", 2)[0])); len(first) > 0 {
			assert.Equal(t, first[0], nested[0])
		}
	})
}
