package gpus

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/screen"
)

const driverName = "gpu.prism.dev"

// uses are claims of pods such as "web/rank-x2"; with memory, "20Gi web/chat-1".
func uses(texts ...string) (all []clusterview.Use) {
	for _, text := range texts {
		result := &resourceapi.DeviceRequestAllocationResult{}
		if memory, rest, found := strings.Cut(text, " "); found {
			text = rest
			result.ConsumedCapacity = map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse(memory)}
		}
		namespace, name, _ := strings.Cut(text, "/")
		claim := &clusterview.Claim{ResourceClaim: &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name + "-gpu"}}}
		if name != "" && !strings.HasPrefix(name, "idle") {
			claim.Pods = []*clusterview.Pod{{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}}}
		}
		all = append(all, clusterview.Use{Claim: claim, Result: result})
	}
	return all
}

// h100 is a GPU with 8 memory slices.
func h100(node *clusterview.Node, index int64, name string, free int64, parts ...clusterview.Part) *clusterview.GPU {
	return &clusterview.GPU{
		Node: node, Name: "gpu-" + name, UUID: "GPU-" + name + "-0c1e-4b8a-9d4e-2f6a7b8c9d0e", Index: &index, Product: "NVIDIA H100 80GB HBM3",
		DriverVersion: "580.95.5", Memory: 81559 << 20, Free: free << 20, MemorySlices: 8, Devices: map[string]int{"gpu": 1, "mig": 13}, Parts: parts,
	}
}

// a07 is a node with GPUs in each mode.
func a07() []*clusterview.GPU {
	node := &clusterview.Node{Name: "gpu-a07"}
	mig := func(profile string, start, size int, use string) clusterview.Part {
		return clusterview.Part{Type: "mig", Profile: profile, Start: start, Size: size, Uses: uses(use)}
	}
	lost := h100(node, 4, "9d0e1f2a", 81559)
	lost.Taints = []clusterview.Taint{{Key: driverName + "/gpu-lost", Value: "hung", Effect: "NoExecute", Devices: 14}}
	busy := h100(node, 5, "aa11bb22", 81559)
	busy.Taints = []clusterview.Taint{{Key: "example.com/team", Effect: "NoSchedule", Devices: 3}}
	return []*clusterview.GPU{
		h100(node, 0, "46b93708", 29952, mig("1g.10gb", 2, 1, "web/rank-x2"), mig("3g.40gb", 4, 4, "ml/t-1")),
		h100(node, 1, "581d9886", 0, clusterview.Part{Type: "gpu", Uses: uses("ml/big-0")}),
		h100(node, 2, "84db48e3", 37888, clusterview.Part{Type: "mps", Uses: uses("20Gi web/chat-1", "22Gi web/chat-2")}),
		h100(node, 3, "c0ffee00", 81559, clusterview.Part{Type: "timeslice", Device: "gpu-c0ffee00-timeslice", Uses: uses("dev/notebook-a", "dev/idle")}),
		lost, busy,
	}
}

func TestMapText_AllModes_BarsAndNames(t *testing.T) {
	t.Parallel()
	golden(t, "map", nodeText(wide80, driverName, a07()[:3], false))
	golden(t, "map-all", nodeText(wide80, driverName, a07(), false))
	golden(t, "map-all-40", nodeText(wide40, driverName, a07(), false))
	golden(t, "map-wide", nodeText(screen.Screen{Width: 120}, driverName, a07()[:3], true))
}

// TestMapText_SmallAndStaticGPUs_OwnBars: an A30 has 4 memory slices; a GPU that only has static MIG devices has no index.
func TestMapText_SmallAndStaticGPUs_OwnBars(t *testing.T) {
	t.Parallel()
	node := &clusterview.Node{Name: "mixed", Object: &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}}
	a30 := h100(node, 0, "11111111", 18000, clusterview.Part{Type: "mig", Profile: "1g.6gb", Start: 3, Size: 1, Uses: uses("web/a")})
	a30.MemorySlices, a30.Memory, a30.Product = 4, 24576<<20, "NVIDIA A30"
	static := h100(node, 1, "22222222", 0)
	static.Index, static.Product = nil, "NVIDIA A30"
	for i := range 7 {
		use := "team-" + string(rune('a'+i)) + "/a-rather-long-name-of-a-pod-" + string(rune('0'+i))
		static.Parts = append(static.Parts, clusterview.Part{Type: "mig", Profile: "1g.6gb", Start: i, Size: 1, Uses: uses(use)})
	}
	t4 := h100(node, 2, "33333333", 16384)
	t4.MemorySlices, t4.Product, t4.Memory, t4.Devices = 0, "Tesla T4", 16384<<20, map[string]int{"gpu": 1}
	golden(t, "map-mixed", nodeText(wide80, driverName, []*clusterview.GPU{a30, t4, static}, false))
	golden(t, "map-mixed-40", nodeText(wide40, driverName, []*clusterview.GPU{a30, t4, static}, false))
}

// TestMapText_ManyShares_SeveralLines: MPS allows 48 clients.
func TestMapText_ManyShares_SeveralLines(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 48 {
		names = append(names, fmt.Sprintf("1Gi web/chat-%d", i))
	}
	gpus := []*clusterview.GPU{h100(&clusterview.Node{Name: "n"}, 0, "44444444", 32768, clusterview.Part{Type: "mps", Uses: uses(names...)})}
	for _, width := range []int{40, 80, 200} {
		text := nodeText(screen.Screen{Width: width}, driverName, gpus, false)
		assert.Equal(t, 48, strings.Count(text, "web/chat-"))
		for line := range strings.Lines(text) {
			assert.LessOrEqual(t, utf8.RuneCountInString(line)-1, width, line)
		}
	}
}

func TestMapText_Colors_AddNothingToLetters(t *testing.T) {
	t.Parallel()
	plain := nodeText(wide80, driverName, a07(), false)
	colored := nodeText(screen.Screen{Width: 80, Colors: true}, driverName, a07(), false)
	assert.NotContains(t, plain, "\x1b")
	assert.Contains(t, colored, "\x1b[36mA\x1b[0m")
	assert.Contains(t, colored, "\x1b[31mxxxxxxxx\x1b[0m")
	var text strings.Builder
	for i, part := range strings.Split(colored, "\x1b[") {
		if i > 0 {
			_, part, _ = strings.Cut(part, "m")
		}
		text.WriteString(part)
	}
	assert.Equal(t, plain, text.String())
}

func TestMapText_Widths_NumbersNeverCut(t *testing.T) {
	t.Parallel()
	for width := 40; width <= 120; width++ {
		text := nodeText(screen.Screen{Width: width}, driverName, a07(), false)
		for _, number := range []string{"29952Mi free", "37Gi free", "20Gi ", "22Gi ", "(3/14)", "1g.10gb", "580.95.5"} {
			assert.Contains(t, text, number, width)
		}
		for line := range strings.Lines(text) {
			assert.LessOrEqual(t, utf8.RuneCountInString(line)-1, width, "%d: %s", width, line)
		}
	}
}

func TestMapText_TextOfTenants_Escaped(t *testing.T) {
	t.Parallel()
	gpus := a07()[:1]
	evil := "a\x1b[2Jb"
	gpus[0].Product, gpus[0].Taints = evil, []clusterview.Taint{{Key: evil, Value: evil, Effect: "NoSchedule", Devices: 14}}
	gpus[0].Parts[0].Profile = evil
	text := nodeText(wide80, driverName, gpus, false)
	assert.NotContains(t, text, "\x1b")
	assert.Equal(t, 4, strings.Count(text, `a\x1b[2Jb`))
}

func TestBar_MemoryInUse_AtLeastOneCellAndAllOnlyIfFull(t *testing.T) {
	t.Parallel()
	for free, want := range map[int64]string{81559: "[m.......]", 81000: "[m.......]", 40000: "[mmmm....]", 100: "[mmmmmmm.]", 0: "[mmmmmmmm]"} {
		assert.Equal(t, want, bar(h100(nil, 0, "x", free, clusterview.Part{Type: "mps"})), free)
	}
}
