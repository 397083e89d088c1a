package profiler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/claim"
	"github.com/prism-gpu/prism/pkg/pattern"
	"github.com/prism-gpu/prism/pkg/plugin/kube"
	"github.com/prism-gpu/prism/pkg/plugin/profiler/counting"
	"github.com/prism-gpu/prism/pkg/profiler/nsight"
	"github.com/prism-gpu/prism/pkg/profiler/report"
	"github.com/prism-gpu/prism/pkg/profiler/rules"
)

// profiling decides how processes are profiled on the node: by the rules of the cluster, which it follows, and by the installed versions of
// the tool.
type profiling struct {
	*pattern.Cache
	from   string // "<namespace>/<name>" of the ConfigMap; empty: there are no rules
	client kubernetes.Interface
	node   *Extension
	labels *labelCache
	// paranoid is the path of the file kernel.perf_event_paranoid.
	paranoid string
	logger   klog.Logger

	rules atomic.Pointer[rules.Rules] // nil until they are read
}

// firstRead is the time that the start waits for the rules.
const firstRead = time.Second

// newProfiling reads the rules once, if that is quick.
func (p *Extension) newProfiling(ctx context.Context, client kubernetes.Interface) *profiling {
	r := &profiling{
		Cache: p.decoded.patterns, from: p.cfg.Profiler.Map, client: client, node: p, logger: klog.FromContext(ctx),
		paranoid: filepath.Join(p.cfg.Paths.HostRoot, "proc/sys/kernel/perf_event_paranoid"),
		labels:   &labelCache{read: kube.Labels{Client: client}, now: p.now},
	}
	if r.from == "" {
		r.rules.Store(&rules.Rules{})
		return r
	}
	reading, stop := context.WithTimeout(ctx, firstRead)
	defer stop()
	r.reload(reading)
	return r
}

// profilingCall implements claim.Profiler for one call.
type profilingCall struct {
	*profiling
	ctx context.Context //nolint:containedctx // of the call; package claim is pure and passes no context
}

// watch reads the rules again whenever the ConfigMap changes, until the context ends.
func (p *profiling) watch(ctx context.Context) error {
	if p.from == "" {
		return nil
	}
	namespace, name, _ := strings.Cut(p.from, "/")
	changed := make(chan struct{}, 1)
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() { p.follow(ctx, changed) })
	watch := kube.ConfigWatch{Client: p.client, Namespace: namespace, Map: name}
	return watch.Run(ctx, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
}

// rulesRetry is the pause after a failed read of the rules.
const rulesRetry = 10 * time.Second

// follow reads the rules at every change, with retries until that succeeds.
func (p *profiling) follow(ctx context.Context, changed <-chan struct{}) {
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-retry:
		}
		retry = nil
		if !p.reload(ctx) {
			retry = time.After(rulesRetry)
		}
	}
}

// reload reads the rules. Invalid rules do not replace the last valid ones; it returns false if the rules must be read again.
func (p *profiling) reload(ctx context.Context) (read bool) {
	namespace, name, _ := strings.Cut(p.from, "/")
	data, err := kube.Configs{Client: p.client}.Get(ctx, namespace, name)
	if err != nil {
		p.logger.Info("Policy and defaults for profiles are not known yet", "reason", err.Error())
		return false
	}
	parsed, err := rules.Parse([]byte(data[rules.Key]))
	if err != nil {
		p.logger.Error(err, "Policy and defaults for profiles are invalid; the last valid ones still apply", "configMap", p.from)
		return true
	}
	p.rules.Store(parsed)
	return true
}

// labelsTimeout is the maximum time that a claim waits for labels.
const labelsTimeout = 2 * time.Second

// known returns the rules. A claim that is prepared before they were read, for example right after the plugin's start, reads them.
func (p *profiling) known(ctx context.Context) *rules.Rules {
	if p.rules.Load() == nil {
		p.reload(ctx)
	}
	return p.rules.Load()
}

// Defaults returns the defaults of the cluster whose conditions apply to the claim.
func (p profilingCall) Defaults(rc *resourceapi.ResourceClaim) ([]*v1alpha1.ProfilerConfig, error) {
	ctx, stop := context.WithTimeout(p.ctx, labelsTimeout)
	defer stop()
	known := p.known(ctx)
	if known == nil {
		return nil, nil
	}
	configs, err := known.Match(rules.Claim{
		Namespace:       rc.Namespace,
		NamespaceLabels: func() (map[string]string, error) { return p.labels.namespace(ctx, rc.Namespace) },
		PodLabels:       func() (map[string]string, error) { return p.labels.pod(ctx, rc) },
	})
	if required, ok := errors.AsType[*rules.Required](err); ok {
		return nil, required
	}
	if err != nil {
		p.logger.Error(err, "Preparing a claim without some defaults for profiles", "claim", klog.KObj(rc))
	}
	return configs, nil
}

// Limit applies the cluster's policy.
func (p profilingCall) Limit(namespace string, config *v1alpha1.ProfilerConfig) error {
	ctx, stop := context.WithTimeout(p.ctx, labelsTimeout)
	defer stop()
	known := p.known(ctx)
	if known == nil {
		return &claim.Refusal{Cause: fmt.Sprintf("the policy for profiles in ConfigMap %s is not known yet", p.from), Transient: true}
	}
	return known.Policy.Limit(namespace, config)
}

// Choose sets the version of the tool, and returns why no version supports the configuration.
func (p *profiling) Choose(config *v1alpha1.ProfilerConfig, software bool) error {
	installed, err := installedTools(p.node.decoded.tools)
	if err != nil {
		return &claim.Refusal{Cause: err.Error(), Transient: true, Err: err}
	}
	wanted := ""
	if config.ToolVersion != nil {
		wanted = *config.ToolVersion
	}
	tool, err := chooseTool(installed, wanted)
	if err != nil {
		return &claim.Refusal{
			Cause: err.Error(), Transient: true, Fix: "the chart value profiler.tools lists the versions that are installed on nodes",
		}
	}
	config.ToolVersion = &tool.Version
	if config.Manual() {
		if err := manual(installed, tool); err != nil {
			return err
		}
	}
	if _, err := nsight.Arguments(config, tool.Tool, software); err != nil {
		return err
	}
	// The programs for containers must be installed.
	if err := p.node.hook.Err(); err != nil {
		return &claim.Refusal{Cause: fmt.Sprintf("the profiler's programs are not installed on the node: %v", err), Mendable: true, Extension: claim.KindProfile, Condition: report.ReasonToolNotInstalled}
	}
	if config.CPUSampling != nil && *config.CPUSampling != v1alpha1.CPUSamplingNone {
		return p.perfEvents()
	}
	return nil
}

// Counters sets the version of the tool to prism-collector's, and returns why it cannot record performance counters with the configuration.
func (p *profiling) Counters(config *v1alpha1.ProfilerConfig) error {
	cfg := p.node.cfg
	if !cfg.Profiler.Collector {
		return &claim.Refusal{
			Cause: fmt.Sprintf("performance counters are recorded by prism-collector, which does not run on node %s", cfg.NodeName),
			Fix:   "set the chart's value profiler.collector.enabled to true, or take source NsightSystems out of GPUMetricsConfig", Mendable: true,
			Extension: claim.KindCounters, Condition: counting.ReasonCollectorOff,
		}
	}
	version, wanted := cfg.Profiler.CollectorVersion, ""
	if config.ToolVersion != nil {
		wanted = *config.ToolVersion
	}
	if _, err := nsight.Choose([]nsight.Tool{{Version: version}}, wanted); err != nil {
		return &claim.Refusal{
			Cause: fmt.Sprintf("prism-collector records with Nsight Systems %s on node %s, and ProfilerConfig.toolVersion is %s", version, cfg.NodeName, wanted),
			Fix:   fmt.Sprintf("set toolVersion to %s, or the chart's value profiler.collector.toolVersion", version), Mendable: true,
			Extension: claim.KindCounters, Condition: reasonOtherVersion,
		}
	}
	config.ToolVersion = &version
	return nil
}

// reasonOtherVersion is the reason of a claim that requests a version that the collector does not have.
const reasonOtherVersion = "OtherToolVersion"

// mostParanoid is the maximum of kernel.perf_event_paranoid with which a process can be sampled.
const mostParanoid = 2

// perfEvents refuses CPU samples if the node's kernel allows them only to administrators. If that is unknown, the profiler decides.
func (p *profiling) perfEvents() error {
	raw, err := os.ReadFile(p.paranoid)
	if err != nil {
		return nil
	}
	level, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || level <= mostParanoid {
		return nil
	}
	return &claim.Refusal{
		Cause: fmt.Sprintf("cpuSampling requires kernel.perf_event_paranoid to be less than or equal to %d on the node, got %d", mostParanoid, level),
		Fix:   "set that sysctl on the node, or cpuSampling: None", Mendable: true, Extension: claim.KindProfile, Condition: report.ReasonPerfEventsUnavailable,
	}
}

// Unprofiled logs why the cluster's defaults do not affect a claim.
func (p *profiling) Unprofiled(rc *resourceapi.ResourceClaim, cause error) {
	p.logger.Info("Preparing a claim without the profile of profiler.defaults",
		"claim", klog.KObj(rc), "claimUID", rc.UID, "reason", cause.Error())
}

// labelCache caches labels for the duration of one call of the kubelet: retries, and pods that start together, ask the API server once.
type labelCache struct {
	read kube.Labels
	now  func() time.Time

	mu    sync.Mutex
	known map[string]cachedLabels
}

type cachedLabels struct {
	labels map[string]string
	read   time.Time
}

// labelsKept is the maximum duration of one call of the kubelet.
const labelsKept = 40 * time.Second

// maxCachedLabels bounds the cache.
const maxCachedLabels = 1024

// errNoPod is returned if a claim is not reserved for a pod, so that there are no labels.
var errNoPod = errors.New("the claim is not reserved for a pod")

func (c *labelCache) namespace(ctx context.Context, name string) (map[string]string, error) {
	return c.get("namespace/"+name, func() (map[string]string, error) { return c.read.Namespace(ctx, name) })
}

// pod returns the labels of the first pod that the claim is reserved for.
func (c *labelCache) pod(ctx context.Context, rc *resourceapi.ResourceClaim) (map[string]string, error) {
	for _, consumer := range rc.Status.ReservedFor {
		if consumer.APIGroup == "" && consumer.Resource == "pods" {
			return c.get("pod/"+string(consumer.UID), func() (map[string]string, error) {
				return c.read.Pod(ctx, rc.Namespace, consumer.Name, consumer.UID)
			})
		}
	}
	return nil, errNoPod
}

// get calls ask only for unknown labels. Errors are not cached.
func (c *labelCache) get(key string, ask func() (map[string]string, error)) (map[string]string, error) {
	now := c.now()
	c.mu.Lock()
	known, ok := c.known[key]
	c.mu.Unlock()
	if ok && now.Sub(known.read) < labelsKept {
		return known.labels, nil
	}
	labels, err := ask()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil || len(c.known) >= maxCachedLabels {
		c.known = map[string]cachedLabels{}
	}
	c.known[key] = cachedLabels{labels, now}
	return labels, nil
}
