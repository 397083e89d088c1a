package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// streamWidth is how many pods request a GPU at once.
	streamWidth = 7
	// overlapping is how many claims must be prepared while two plugins run.
	overlapping = 5
	// There are at least two rollouts, so that one replaces a pod of another, and more until enough claims were prepared while two plugins
	// ran.
	minRollouts, maxRollouts = 2, 20
)

// TestWholeRollingUpdateUnderLoad: several rolling updates under a stream of short pods lose no call of the kubelet.
func TestWholeRollingUpdateUnderLoad(t *testing.T) {
	ns := exclusive(t)
	before, err := ns.kept()
	require.NoError(t, err)
	calls := ns.calls()
	plugins := []*watched{ns.watch(ns.plugin(t))}
	pods := ns.stream()
	pods.flows()
	for n, overlapped := 0, 0; n < minRollouts || overlapped < overlapping; n++ {
		require.Less(t, n, maxRollouts, "%d claims were prepared while two plugins ran", overlapped)
		old, young := ns.rollOver(plugins[n])
		plugins = append(plugins, young)
		byOld, byYoung := old.preparedWithin(ns.name, young.began, old.ended), young.preparedWithin(ns.name, young.began, old.ended)
		t.Logf("rollout %d: in the %.1f s while two plugins ran, the old one prepared %d claims and the new one %d",
			n+1, old.ended.Sub(young.began).Seconds(), byOld, byYoung)
		overlapped += byOld + byYoung
	}
	pods.flows()
	created := pods.end()
	assert.Zero(t, ns.plugin(t).Status.ContainerStatuses[0].RestartCount)

	prepared := map[string]bool{}
	for _, p := range plugins {
		for claim := range p.prepared(ns.name) {
			prepared[claim] = true
		}
	}
	assert.Len(t, prepared, created, "claims that some plugin prepared")
	require.NoError(t, ns.silence())
	eventually(t, startLimit, func() error { return ns.asBefore(before) })
	lost, served := calls.since()
	assert.Empty(t, lost, "calls that the kubelet made and that were not answered")
	assert.GreaterOrEqual(t, served, 2*created, "one call to prepare and one to unprepare for each pod")
	t.Logf("%d pods in %d rollouts, %d calls of the kubelet, none lost", created, len(plugins)-1, served)
}

// rollOver replaces a plugin by a new one and waits until the old one is gone.
func (ns *namespace) rollOver(old *watched) (before, after *watched) {
	ns.t.Helper()
	ns.must(ns.t, ns.kubectl("rollout", "restart", "--namespace", system, "daemonset/"+pluginName)...)
	young := ns.watch(ns.next(old.pod))
	eventually(ns.t, startLimit, func() error { return ns.gone(old.pod) })
	old.ended = time.Now()
	ns.rolledOut(ns.t)
	return old, young
}

// shortPod returns a pod that exits soon after it saw that it has one GPU. Each runs for another time, so that they do not synchronize.
func shortPod(n int) workload {
	return workload{
		generateName: "short-", ref: "gpu", template: oneGPU,
		command: []string{"sh", "-c", fmt.Sprintf(`test "$(nvidia-smi -L | wc -l)" = 1 && sleep 0.%d`, n*3%10)},
	}
}

// oneGPU is a claim template for one GPU.
const oneGPU = "one-gpu"

// podStream creates a stream of short pods.
type podStream struct {
	ns    *namespace
	stop  chan struct{}
	ended sync.WaitGroup

	mu      sync.Mutex
	created int
	done    int
	err     error
}

// stream starts to create short pods, so that some of them always request a GPU.
func (ns *namespace) stream() *podStream {
	ns.t.Helper()
	template := workload{name: oneGPU, ref: "gpu", request: request{class: gpuClass}}
	text, err := json.Marshal(template.objects()[0])
	require.NoError(ns.t, err)
	require.NoError(ns.t, ns.createText(string(text)))
	s := &podStream{ns: ns, stop: make(chan struct{})}
	s.ended.Go(func() {
		for {
			if err := s.step(streamWidth); err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.err = err
				return
			}
			select {
			case <-s.stop:
				return
			case <-time.After(interval):
			}
		}
	})
	ns.t.Cleanup(sync.OnceFunc(func() { s.finish() }))
	return s
}

// step reads the pods and creates the missing ones.
func (s *podStream) step(width int) error {
	var pods corev1.PodList
	if err := s.ns.read(&pods, "pods"); err != nil {
		return err
	}
	done := 0
	for i := range pods.Items {
		switch pods.Items[i].Status.Phase {
		case corev1.PodSucceeded:
			done++
		case corev1.PodFailed:
			return fmt.Errorf("pod %s failed: it did not see one GPU", pods.Items[i].Name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = done
	if missing := width - (s.created - done); missing > 0 {
		var pods []workload
		for range missing {
			pods = append(pods, shortPod(s.created))
			s.created++
		}
		return s.ns.tryCreate(pods...)
	}
	return nil
}

func (s *podStream) count() (created, done int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.created, s.done, s.err
}

// flows waits until some more pods have started and ended.
func (s *podStream) flows() {
	s.ns.t.Helper()
	_, start, _ := s.count()
	eventually(s.ns.t, startLimit, func() error {
		created, done, err := s.count()
		require.NoError(s.ns.t, err)
		if done < start+streamWidth {
			return fmt.Errorf("%d of %d pods are done", done, created)
		}
		return nil
	})
}

func (s *podStream) finish() {
	select {
	case <-s.stop:
	default:
		close(s.stop)
	}
	s.ended.Wait()
}

// end creates no more pods, waits until all are done, and returns their number.
func (s *podStream) end() int {
	s.ns.t.Helper()
	s.finish()
	eventually(s.ns.t, startLimit, func() error {
		require.NoError(s.ns.t, s.err)
		if err := s.step(0); err != nil {
			return err
		}
		if s.done != s.created {
			return fmt.Errorf("%d of %d pods are done", s.done, s.created)
		}
		return nil
	})
	return s.created
}

// watched is a plugin whose log is also read after it is gone.
type watched struct {
	t     *testing.T
	pod   *corev1.Pod
	log   *os.File
	began time.Time
	ended time.Time // set by rollOver
}

// watch opens the log of a plugin that runs.
func (ns *namespace) watch(pod *corev1.Pod) *watched {
	ns.t.Helper()
	path := filepath.Join(ns.variable("PRISM_NODE_0_ROOT"), "var/log/pods",
		fmt.Sprintf("%s_%s_%s", system, pod.Name, pod.UID), "kubelet-plugin",
		fmt.Sprintf("%d.log", pod.Status.ContainerStatuses[0].RestartCount))
	file, err := os.Open(path)
	require.NoError(ns.t, err)
	ns.t.Cleanup(func() { file.Close() })
	w := &watched{t: ns.t, pod: pod, log: file}
	eventually(ns.t, startLimit, func() error {
		w.began = time.Time{}
		w.lines(func(at time.Time, _ string) {
			if w.began.IsZero() {
				w.began = at
			}
		})
		if w.began.IsZero() {
			return errors.New("the plugin has not logged yet")
		}
		return nil
	})
	return w
}

// lines reads the log from its beginning.
func (w *watched) lines(each func(at time.Time, line string)) {
	w.t.Helper()
	_, err := w.log.Seek(0, io.SeekStart)
	require.NoError(w.t, err)
	lines := bufio.NewScanner(w.log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		stamp, line, _ := strings.Cut(lines.Text(), " ")
		at, err := time.Parse(time.RFC3339Nano, stamp)
		require.NoError(w.t, err)
		each(at, line)
	}
	require.NoError(w.t, lines.Err())
}

var preparedLine = regexp.MustCompile(`"Claim is prepared" .* claim="([^/"]+)/([^"]+)"`)

// prepared returns when the plugin prepared each claim of a namespace.
func (w *watched) prepared(namespace string) map[string]time.Time {
	w.t.Helper()
	claims := map[string]time.Time{}
	w.lines(func(at time.Time, line string) {
		if match := preparedLine.FindStringSubmatch(line); match != nil && match[1] == namespace {
			claims[match[2]] = at
		}
	})
	return claims
}

func (w *watched) preparedWithin(namespace string, from, to time.Time) int {
	w.t.Helper()
	n := 0
	for _, at := range w.prepared(namespace) {
		if at.After(from) && at.Before(to) {
			n++
		}
	}
	return n
}

// next waits for the running plugin that replaces another one.
func (ns *namespace) next(old *corev1.Pod) *corev1.Pod {
	ns.t.Helper()
	var young *corev1.Pod
	eventually(ns.t, startLimit, func() error {
		var pods corev1.PodList
		if err := ns.get(&pods, "pods", "--namespace", system, "--selector", pluginSelector); err != nil {
			return err
		}
		for i := range pods.Items {
			pod := &pods.Items[i]
			if pod.UID != old.UID && pod.CreationTimestamp.After(old.CreationTimestamp.Time) && pod.Status.Phase == corev1.PodRunning {
				young = pod
				return nil
			}
		}
		return errors.New("no new plugin runs")
	})
	return young
}

// gone returns an error while the plugin's pod exists.
func (ns *namespace) gone(plugin *corev1.Pod) error {
	err := ns.get(&corev1.Pod{}, "pod", plugin.Name, "--namespace", system)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("pod %s is still there", plugin.Name)
	}
	return err
}

// asBefore returns an error while the node keeps other files than before.
func (ns *namespace) asBefore(before []string) error {
	now, err := ns.kept()
	if err == nil && len(now) != len(before) {
		err = fmt.Errorf("the node keeps %s", strings.Join(now, ", "))
	}
	return err
}

// draCalls counts the kubelet's calls of DRA plugins, from the kubelet's own metrics.
type draCalls struct {
	ns     *namespace
	before map[string]int
}

func (ns *namespace) calls() *draCalls {
	ns.t.Helper()
	return &draCalls{ns: ns, before: ns.callCounts()}
}

// since returns the number of answered calls since then, and the other counts of the kubelet.
func (c *draCalls) since() (lost map[string]int, served int) {
	c.ns.t.Helper()
	lost = map[string]int{}
	for what, n := range c.ns.callCounts() {
		n -= c.before[what]
		switch {
		case strings.Contains(what, `grpc_status_code="OK"`):
			served += n
		case n > 0:
			lost[what] = n
		}
	}
	return lost, served
}

// callCount matches the count of calls of a plugin by their result.
var callCount = regexp.MustCompile(`^dra_grpc_operations_duration_seconds_count(\{.*driver_name="` + driverName + `".*\}) (\d+)$`)

// callCounts reads the kubelet's metrics, by the labels of each.
func (ns *namespace) callCounts() map[string]int {
	ns.t.Helper()
	failureCount, err := failureCount()
	require.NoError(ns.t, err)
	counts := map[string]int{}
	for line := range strings.Lines(ns.must(ns.t, ns.kubectl("get", "--raw", "/api/v1/nodes/"+nodeName+"/proxy/metrics")...)) {
		for _, metric := range []*regexp.Regexp{callCount, failureCount} {
			if match := metric.FindStringSubmatch(strings.TrimSpace(line)); match != nil {
				n, err := strconv.Atoi(match[2])
				require.NoError(ns.t, err)
				counts[match[1]] = n
			}
		}
	}
	return counts
}
