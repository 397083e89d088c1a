package explaining

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/prism-gpu/prism/pkg/cli/cluster"
	"github.com/prism-gpu/prism/pkg/cli/clusterview"
	"github.com/prism-gpu/prism/pkg/cli/explain"
	"github.com/prism-gpu/prism/pkg/cli/reports"
	"github.com/prism-gpu/prism/pkg/cli/view"
)

// Result has the measurements of one process.
type Result struct {
	// Read is the CPU time of reading, Explain of explaining each pending pod, in seconds.
	Read    float64
	Explain map[string]float64
	// Counts are the requests, as the server counted them.
	Counts Counts
	// Calls are the calls of the allocator for each pending pod, Pools the distinct pools.
	Calls map[string]int
	Pools int
	// Sentences are the first lines of the explanations.
	Sentences map[string]string
	// Heap is the memory of the ResourceSlices, in bytes.
	Heap int64
	// RSS is the largest resident memory, in bytes.
	RSS int64
}

func connect(address string) (*cluster.Client, error) {
	config := &rest.Config{Host: address, QPS: -1}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &cluster.Client{Interface: typed, Driver: Driver, Namespace: Namespace, Clock: &reports.Clock{}}, nil
}

// Explain reads the cluster of a server, and explains all pending pods.
func Explain(ctx context.Context, address string) (*Result, error) {
	client, err := connect(address)
	if err != nil {
		return nil, err
	}
	before := cpu()
	features, err := view.Features(ctx, client, "")
	if err != nil {
		return nil, err
	}
	c, _, err := view.Read(ctx, client, view.Options{Driver: Driver, AllDrivers: true, Pods: true, AllPods: true})
	if err != nil {
		return nil, err
	}
	r := &Result{Read: cpu() - before, Explain: map[string]float64{}, Calls: map[string]int{}, Sentences: map[string]string{}}
	keys := map[string]bool{}
	for _, n := range c.Nodes {
		for _, p := range n.Pools {
			keys[p.Key(clusterview.Reads{})] = true
		}
	}
	r.Pools = len(keys)
	for _, name := range Pending {
		before = cpu()
		solver := explain.NewSolver(c, features)
		e, err := explain.Pod(ctx, solver, c.FindPod(Namespace, name), explain.Options{Driver: Driver, Now: 1_790_000_600, PerNode: perNode})
		if err != nil {
			return nil, fmt.Errorf("explaining pod %s: %w", name, err)
		}
		r.Calls[name], r.Sentences[name], r.Explain[name] = solver.Calls, e.Sentence, cpu()-before
	}
	r.RSS = peak()
	return r, nil
}

func perNode(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, 2*time.Second)
}

// Decode reads the ResourceSlices with the usual client, and keeps them.
func Decode(ctx context.Context, address string) (*Result, error) {
	var all []*resourceapi.ResourceSliceList
	r, err := readSlices(ctx, address, func(page *resourceapi.ResourceSliceList) { all = append(all, page) })
	runtime.KeepAlive(all)
	return r, err
}

// Reduce reads the ResourceSlices into a picture, and keeps it.
func Reduce(ctx context.Context, address string) (*Result, error) {
	store := clusterview.NewStore()
	r, err := readSlices(ctx, address, func(page *resourceapi.ResourceSliceList) {
		for i := range page.Items {
			store.PutSlice(&page.Items[i])
		}
	})
	runtime.KeepAlive(store)
	return r, err
}

func readSlices(ctx context.Context, address string, add func(*resourceapi.ResourceSliceList)) (*Result, error) {
	config := &rest.Config{Host: address, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	heap, before := used(), cpu()
	for options := (metav1.ListOptions{Limit: 500}); ; {
		page, err := client.ResourceV1().ResourceSlices().List(ctx, options)
		if err != nil {
			return nil, err
		}
		add(page)
		if options.Continue = page.Continue; options.Continue == "" {
			break
		}
	}
	r := &Result{Read: cpu() - before}
	r.Heap, r.RSS = used()-heap, peak()
	return r, nil
}

// Budgets of an explanation.
const (
	maxCallsPerPool = 3
	maxHeapPart     = 10
	maxRSS          = 192 << 20
)

// CheckCounts compares the counts with their budgets.
func (r *Result) CheckCounts() (failed error) {
	if r.Counts.Lists != r.Counts.Pages || r.Counts.Writes != 0 {
		failed = errors.Join(failed, fmt.Errorf("%d LIST of %d pages, %d writes", r.Counts.Lists, r.Counts.Pages, r.Counts.Writes))
	}
	for name, calls := range r.Calls {
		if calls > maxCallsPerPool*r.Pools {
			failed = errors.Join(failed, fmt.Errorf("pod %s: %d calls of the allocator for %d distinct pools", name, calls, r.Pools))
		}
	}
	return failed
}

// Check compares all with the budgets. The other results are of ResourceSlices alone, decoded and reduced.
func (r *Result) Check(decoded, reduced *Result) error {
	failed := r.CheckCounts()
	if reduced.Heap*maxHeapPart > decoded.Heap {
		failed = errors.Join(failed, fmt.Errorf("ResourceSlices have %d bytes of heap, decoded %d", reduced.Heap, decoded.Heap))
	}
	if r.RSS > maxRSS {
		failed = errors.Join(failed, fmt.Errorf("%d bytes of memory are resident, more than %d", r.RSS, maxRSS))
	}
	for name, seconds := range r.Explain {
		if seconds > decoded.Read {
			failed = errors.Join(failed, fmt.Errorf("pod %s: %.2fs of CPU to explain, %.2fs to decode ResourceSlices", name, seconds, decoded.Read))
		}
	}
	return failed
}

// used is the memory of all reachable objects.
func used() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// cpu is the CPU time of the process, in seconds.
func cpu() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// peak is the largest resident memory of the process.
func peak() int64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "kB")
	kib, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	return kib << 10
}
