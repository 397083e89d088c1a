package claim

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/prism-gpu/prism/api/v1alpha1"
	"github.com/prism-gpu/prism/pkg/gpu"
	"github.com/prism-gpu/prism/pkg/pattern"
)

const profilerStart = `{"apiVersion":"gpu.prism.dev/v1alpha1","kind":"ProfilerConfig"`

// forProfiler is a ProfilerConfig with these fields.
func forProfiler(fields string) string {
	if fields == "" {
		return profilerStart + "}"
	}
	return profilerStart + "," + fields + "}"
}

// profiled decodes fields of a ProfilerConfig.
func profiled(t *testing.T, fields string) *v1alpha1.ProfilerConfig {
	t.Helper()
	config, err := v1alpha1.Decode([]byte(forProfiler(fields)))
	require.NoError(t, err)
	return config.(*v1alpha1.ProfilerConfig)
}

// fakeProfiler has these defaults, and refuses with these errors.
type fakeProfiler struct {
	defaults        []*v1alpha1.ProfilerConfig
	denied, lacking error
	software        []bool
	undecided       error
	unprofiled      []string
	asked           int
	compiled        []string
	// counted are the configurations that the collector was asked about; it cannot record them because of uncounted. maxDuration is the
	// policy's.
	counted     []*v1alpha1.ProfilerConfig
	uncounted   error
	maxDuration *metav1.Duration
	chosen      []string
}

func (f *fakeProfiler) Compile(text string, dialect pattern.Dialect) (*pattern.Table, error) {
	f.compiled = append(f.compiled, text)
	return pattern.Compile(text, dialect)
}

func (f *fakeProfiler) Defaults(*resourceapi.ResourceClaim) ([]*v1alpha1.ProfilerConfig, error) {
	f.asked++
	return f.defaults, f.undecided
}

func (f *fakeProfiler) Limit(_ string, c *v1alpha1.ProfilerConfig) error {
	if c.ToolVersion == nil {
		c.ToolVersion = new("2025.5.1") // stands for a limit
	}
	if c.Duration == nil {
		c.Duration = f.maxDuration
	}
	return f.denied
}

// collectorVersion is the version of the collector.
const collectorVersion = "2025.6.1"

func (f *fakeProfiler) Counters(c *v1alpha1.ProfilerConfig) error {
	f.counted = append(f.counted, c)
	c.ToolVersion = new(collectorVersion)
	return f.uncounted
}

func (f *fakeProfiler) Choose(c *v1alpha1.ProfilerConfig, software bool) error {
	f.software = append(f.software, software)
	f.chosen = append(f.chosen, *c.ToolVersion)
	return f.lacking
}

func (f *fakeProfiler) Unprofiled(_ *resourceapi.ResourceClaim, cause error) {
	f.unprofiled = append(f.unprofiled, cause.Error())
}

// profiling is a node with a profiler.
func profiling(p *fakeProfiler) Source {
	s := source(node())
	s.Extensions = extended(false, p)
	return s
}

func TestResolve_Profile_MergedByField(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ class, defaults, claim, want string }{
		"nothing set":                       {"", "", "", ""},
		"claim over defaults over class":    {`"duration":"1m","delay":"1s","start":"Immediate"`, `"duration":"2m","delay":"2s"`, `"duration":"3m"`, `"duration":"3m","delay":"2s","start":"Immediate"`},
		"fields of match":                   {`"match":{"regex":"a"}`, `"match":{"exclude":["b"]}`, `"match":{"maxSessions":2}`, `"match":{"regex":"a","exclude":["b"],"maxSessions":2}`},
		"what the claim overrides is valid": {`"captureOutput":false`, "", `"trace":["osrt"]`, `"trace":["osrt"]`},
		"by hand":                           {`"arm":"OnDemand","delay":"1s"`, `"start":"Manual"`, `"delay":"0s"`, `"arm":"OnDemand","start":"Manual"`},
		"range taken back":                  {`"start":"NVTX","nvtxRange":"a"`, "", `"start":"Immediate","nvtxRange":""`, `"nvtxRange":""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &fakeProfiler{defaults: []*v1alpha1.ProfilerConfig{profiled(t, c.defaults)}}
			rc := asking(forProfiler(c.class), forProfiler(c.claim))
			plan, err := profiling(p).Resolve(rc)
			require.NoError(t, err)
			want := profiled(t, c.want)
			want.ToolVersion = new("2025.5.1")
			want.Default()
			want.ClaimOverride = nil
			assert.True(t, equal(want, profileIn(plan)), "%v", profileIn(plan))
			assert.True(t, isProfiled(&plan.Results[0]))
			assert.Empty(t, plan.Steps, "a profile needs no step")
			assert.Empty(t, plan.Preconditions)
			assert.Equal(t, []bool{false}, p.software)
			assert.Equal(t, 1, p.asked)
		})
	}
}

// TestResolve_DefaultsUndecided_Refused: a claim is not prepared without a default that it may have to have, unless it opts out of all.
func TestResolve_DefaultsUndecided_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rc      *resourceapi.ResourceClaim
		refused bool
	}{
		"asks for nothing":   {allocated(results(result("gpu", "gpu-aaaaaaaa"))), true},
		"asks for a profile": {asking(plainConfig, forProfiler("")), true},
		"opts out":           {asking(plainConfig, forProfiler(`"enabled":false`)), false},
		"admin access":       {allocated(results(result("gpu", "gpu-aaaaaaaa", withAdmin))), false},
		"monitor":            {allocated(results(monitors("see"))), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &fakeProfiler{undecided: errors.New("labels unknown")}
			_, err := profiling(p).Resolve(c.rc)
			if !c.refused {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, `request "gpu", device gpu-aaaaaaaa: a default for profiles with failurePolicy FailClosed cannot be decided `+
				"now: labels unknown; a claim opts out with a ProfilerConfig that has enabled: false (will be retried)")
		})
	}
}

// TestResolve_NoProfile_NothingPlanned: without a configuration, with one that is not enabled, and with a claim that opts out.
func TestResolve_NoProfile_NothingPlanned(t *testing.T) {
	t.Parallel()
	on := []*v1alpha1.ProfilerConfig{profiled(t, `"failurePolicy":"FailClosed"`)}
	for name, c := range map[string]struct {
		source Source
		rc     *resourceapi.ResourceClaim
	}{
		"no configuration":              {profiling(&fakeProfiler{}), allocated(results(result("gpu", "gpu-aaaaaaaa")))},
		"opted out of class":            {profiling(&fakeProfiler{}), asking(forProfiler(""), forProfiler(`"enabled":false`))},
		"opted out of defaults":         {profiling(&fakeProfiler{defaults: on}), asking(plainConfig, forProfiler(`"enabled":false`))},
		"opted out without profiler":    {source(node()), asking(plainConfig, forProfiler(`"enabled":false`))},
		"opted out with admin access":   {profiling(&fakeProfiler{}), allocated(results(result("gpu", "gpu-aaaaaaaa", withAdmin)), config(fromClaim, driverName, forProfiler(`"enabled":false`)))},
		"defaults with admin access":    {profiling(&fakeProfiler{defaults: on}), allocated(results(result("gpu", "gpu-aaaaaaaa", withAdmin)))},
		"defaults for a monitor":        {profiling(&fakeProfiler{defaults: on}), allocated(results(monitors("see")))},
		"class that only says the tool": {source(node()), asking(forProfiler(`"enabled":false,"toolVersion":"2025.5"`), plainConfig)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := c.source.Resolve(c.rc)
			require.NoError(t, err)
			assert.Nil(t, profileIn(plan))
			assert.False(t, isProfiled(&plan.Results[0]))
		})
	}
}

// TestResolve_DefaultsAlone_ClaimPreparedUnprofiled: if neither class nor claim sets a profile, no default keeps a pod from starting.
func TestResolve_DefaultsAlone_ClaimPreparedUnprofiled(t *testing.T) {
	t.Parallel()
	p := &fakeProfiler{defaults: []*v1alpha1.ProfilerConfig{profiled(t, "")}, lacking: errors.New("no tool")}
	plan, err := profiling(p).Resolve(asking(plainConfig, plainConfig))
	require.NoError(t, err)
	assert.Nil(t, profileIn(plan))
	require.Len(t, p.unprofiled, 1)
	assert.Contains(t, p.unprofiled[0], "no tool")
	p.defaults[0].FailurePolicy = new(v1alpha1.FailClosed)
	_, err = profiling(p).Resolve(asking(plainConfig, plainConfig))
	require.ErrorContains(t, err, "no tool", "FailClosed")
	p.defaults[0].FailurePolicy = nil
	_, err = profiling(p).Resolve(asking(forProfiler(`"trace":["cuda"]`), plainConfig))
	require.ErrorContains(t, err, "no tool", "the class asks for it")
}

func TestResolve_ProfileNotPossible_Refused(t *testing.T) {
	t.Parallel()
	const unsupported = " is not supported by this version of the driver; "
	out := "; take it out of the ResourceClaim (not retryable)"
	for name, c := range map[string]struct {
		profiler     *fakeProfiler
		class, claim string
		want         string
	}{
		"tool":              {nil, "", `"tool":"NsightCompute"`, "ProfilerConfig.tool NsightCompute" + unsupported + "supported values: NsightSystems" + out},
		"NRI":               {nil, "", `"injection":"NRI"`, "ProfilerConfig.injection NRI" + unsupported + "supported values: Preload, None" + out},
		"None":              {nil, "", `"injection":"None"`, noCounters + "; set source: NsightSystems, or injection: Preload (not retryable)"},
		"None of the class": {nil, `"injection":"None"`, "", noCounters + "; set source: NsightSystems, or injection: Preload (not retryable)"},
		"output":            {nil, "", `"captureOutput":true`, "ProfilerConfig.captureOutput true" + unsupported + "the output of a process stays in the log of its container" + out},
		"upload":            {nil, "", `"output":{"upload":{"secretClass":"a"}}`, "ProfilerConfig.output upload" + unsupported + "reports are downloaded with kubectl prism profile download" + out},
		"policy":            {&fakeProfiler{denied: errors.New("args are not allowed")}, "", "", "args are not allowed; change the ProfilerConfig, or the chart's value profiler.policy (will be retried)"},
		"tool, now":         {&fakeProfiler{lacking: &Refusal{Cause: "no tool", Fix: "wait", Transient: true}}, "", "", "no tool; wait (will be retried)"},
		"together": {nil, `"output":{"type":"Node"}`, `"output":{"path":"/a"}`, "the combined configuration of DeviceClass, the cluster's defaults and ResourceClaim is invalid: " +
			"ProfilerConfig: output.path: has no effect with type Node; remove it or set type to ContainerPath; correct one of them (not retryable)"},
		"default type": {nil, "", `"output":{"path":"/a"}`, "the combined configuration of DeviceClass, the cluster's defaults and ResourceClaim is invalid: " +
			"ProfilerConfig: output.path: has no effect with type Node; remove it or set type to ContainerPath; correct one of them (not retryable)"},
		"by hand, with a delay": {nil, `"delay":"1s"`, `"start":"Manual"`, "the combined configuration of DeviceClass, the cluster's defaults and ResourceClaim is invalid: " +
			"ProfilerConfig: delay: has no effect with start Manual: commands start each recording; remove it; correct one of them (not retryable)"},
		"forbidden": {nil, `"claimOverride":"Forbidden"`, `"enabled":false`, "ProfilerConfig: enabled" + forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := c.profiler
			if p == nil {
				p = &fakeProfiler{}
			}
			requireRefused(t, profiling(p), asking(forProfiler(c.class), forProfiler(c.claim)), `request "gpu", device gpu-aaaaaaaa: `+c.want)
		})
	}
	_, err := profiling(&fakeProfiler{}).Resolve(allocated(results(result("gpu", "gpu-aaaaaaaa", withAdmin)), config(fromClaim, driverName, forProfiler(""))))
	require.ErrorContains(t, err, adminProfiler)
	_, err = profiling(&fakeProfiler{}).Resolve(allocated(results(monitors("see")), config(fromClaim, driverName, forProfiler(""))))
	require.ErrorContains(t, err, "ProfilerConfig is not supported for a monitor device, which only shows GPUs that other claims use")
	_, err = profiling(&fakeProfiler{}).Resolve(allocated(results(result("gpu", "gpu-aaaaaaaa")), config(fromClaim, driverName, forProfiler(""))))
	require.ErrorContains(t, err, `"uid-1" is no UID of a claim`)
}

// TestResolve_PatternNotPossible_RefusedAsWhenWritten: a pattern that cannot be matched is refused with the reason, in both dialects.
func TestResolve_PatternNotPossible_RefusedAsWhenWritten(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		`"match":{"regex":"(?<=a)b"}`:                        "ProfilerConfig.match.regex: ",
		`"match":{"exclude":["a","(?<=a)b"]}`:                "ProfilerConfig.match.exclude[1]: ",
		`"match":{"regex":"(a{1000}){9}","dialect":"RE2"}`:   "",
		`"match":{"regex":"^.{30}a"}`:                        "ProfilerConfig.match.regex: ",
		`"match":{"regex":"^(?!.*torchrun).*python.*train"}`: "",
	} {
		_, err := profiling(&fakeProfiler{}).Resolve(asking(forProfiler(""), forProfiler(fields)))
		validator := Validator{Driver: driverName}
		spec := &resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "r", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.prism.dev"}}},
			Config: []resourceapi.DeviceClaimConfiguration{{DeviceConfiguration: resourceapi.DeviceConfiguration{
				Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driverName, Parameters: runtime.RawExtension{Raw: []byte(forProfiler(fields))}},
			}}},
		}}
		written := validator.Claim("spec", spec)
		if want == "" {
			require.Equal(t, err == nil, written == nil, "%s: %v, %v", fields, err, written)
			continue
		}
		require.ErrorContains(t, err, want, fields)
		require.ErrorContains(t, written, want, fields)
	}
}

// TestPatterns_ManyInOneObject_Bounded: an object with hundreds of patterns does not keep the API server waiting.
func TestPatterns_ManyInOneObject_Bounded(t *testing.T) {
	t.Parallel()
	checked := newPatterns()
	for i := range 10 * maxPatterns {
		require.NoError(t, checked.check(profiled(t, `"match":{"regex":"`+strings.Repeat("a", i+1)+`"}`).Match))
	}
	assert.Len(t, checked.checked, maxPatterns)
}

// TestResolve_Patterns_CompiledByProfiler, which keeps compiled patterns: claims with the same pattern are planned without compiling it
// again.
func TestResolve_Patterns_CompiledByProfiler(t *testing.T) {
	t.Parallel()
	p := &fakeProfiler{}
	rc := allocated(results(result("a", "gpu-aaaaaaaa")), config(fromClaim, driverName, forProfiler(`"match":{"regex":"train","exclude":["^/bin/"]}`)))
	rc.UID = aUID
	_, err := profiling(p).Resolve(rc)
	require.NoError(t, err)
	assert.Equal(t, []string{"train", "^/bin/"}, p.compiled)
}

// TestResolve_SeveralRequests_OneProfile: the processes of a claim are profiled alike, and only in containers with such a request.
func TestResolve_SeveralRequests_OneProfile(t *testing.T) {
	t.Parallel()
	two := results(result("a", "gpu-aaaaaaaa"), result("b", "gpu-bbbbbbbb"))
	claim := func(configs ...resourceapi.DeviceAllocationConfiguration) *resourceapi.ResourceClaim {
		rc := allocated(two, configs...)
		rc.UID = aUID
		return rc
	}
	plan, err := profiling(&fakeProfiler{}).Resolve(claim(config(fromClaim, driverName, forProfiler(""), "b")))
	require.NoError(t, err)
	assert.NotNil(t, profileIn(plan))
	assert.Equal(t, []bool{false, true}, []bool{isProfiled(&plan.Results[0]), isProfiled(&plan.Results[1])})
	plan, err = profiling(&fakeProfiler{}).Resolve(claim(config(fromClaim, driverName, forProfiler(`"output":{"maxBytes":"1Gi"}`), "a"),
		config(fromClaim, driverName, forProfiler(`"output":{"maxBytes":"1024Mi"}`), "b")))
	require.NoError(t, err, "the same in another form")
	assert.Equal(t, []bool{true, true}, []bool{isProfiled(&plan.Results[0]), isProfiled(&plan.Results[1])})
	_, err = profiling(&fakeProfiler{}).Resolve(claim(config(fromClaim, driverName, forProfiler(""), "a"),
		config(fromClaim, driverName, forProfiler(`"trace":["osrt"]`), "b")))
	require.ErrorContains(t, err, `request "b", device gpu-bbbbbbbb: its ProfilerConfig differs from the configuration of the earlier requests`)
}

// TestResolve_MIGDevice_SoftwareTrace: the node hears that CUDA cannot be traced in hardware.
func TestResolve_MIGDevice_SoftwareTrace(t *testing.T) {
	t.Parallel()
	n, layout := partitionable()
	p := &fakeProfiler{}
	s := advertising(n, layout)
	s.Extensions = extended(false, p)
	rc := allocated([]resourceapi.DeviceRequestAllocationResult{inA("r", string(gpu.DeviceName("gpu-aaaaaaaa-mig-19-0")))}, config(fromClaim, driverName, forProfiler("")))
	rc.UID = aUID
	_, err := s.Resolve(rc)
	require.NoError(t, err)
	assert.Equal(t, []bool{true}, p.software)
}
