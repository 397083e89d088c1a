package rules

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/v1alpha1"
)

func parsed(t *testing.T, raw string) *Rules {
	t.Helper()
	r, err := Parse([]byte(raw))
	require.NoError(t, err)
	return r
}

// labelled returns a claim whose namespace and pod have these labels, and counts how often the labels are read.
func labelled(namespace string, ofNamespace, ofPod map[string]string) (c Claim, namespaces, pods *int) {
	namespaces, pods = new(int), new(int)
	return Claim{
		Namespace:       namespace,
		NamespaceLabels: func() (map[string]string, error) { *namespaces++; return ofNamespace, nil },
		PodLabels:       func() (map[string]string, error) { *pods++; return ofPod, nil },
	}, namespaces, pods
}

func TestMatch_Conditions_AllMustBeTrue(t *testing.T) {
	t.Parallel()
	const all = `defaults:
- {config: {duration: 1s}}
- {namespaces: [a, b], config: {duration: 2s}}
- {namespaceSelector: {matchLabels: {team: x}}, config: {duration: 3s}}
- {namespaces: [a], podSelector: {matchExpressions: [{key: app, operator: In, values: [train]}]}, config: {duration: 4s}}
- {podSelector: {}, config: {duration: 5s}}
`
	for name, c := range map[string]struct {
		rules, namespace string
		ofNamespace      map[string]string
		ofPod            map[string]string
		want             string
		namespaces, pods int
	}{
		"no rules":            {"", "a", nil, nil, "", 0, 0},
		"none but the first":  {all, "c", nil, nil, "1s 5s", 1, 1},
		"by name":             {all, "b", nil, nil, "1s 2s 5s", 1, 1},
		"by label":            {all, "c", map[string]string{"team": "x"}, nil, "1s 3s 5s", 1, 1},
		"by pod":              {all, "a", nil, map[string]string{"app": "train"}, "1s 2s 4s 5s", 1, 1},
		"by all":              {all, "a", map[string]string{"team": "x"}, map[string]string{"app": "train"}, "1s 2s 3s 4s 5s", 1, 1},
		"no selector":         {"defaults: [{namespaces: [a], config: {duration: 1s}}]", "a", nil, nil, "1s", 0, 0},
		"selector of others":  {"defaults: [{namespaces: [b], podSelector: {}, config: {}}]", "a", nil, nil, "", 0, 0},
		"pod after namespace": {"defaults: [{namespaceSelector: {matchLabels: {a: b}}, podSelector: {}, config: {}}]", "a", nil, nil, "", 1, 0},
		"not allowed":         {"policy: {namespaces: [b]}\n" + all, "a", map[string]string{"team": "x"}, nil, "", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim, namespaces, pods := labelled(c.namespace, c.ofNamespace, c.ofPod)
			configs, err := parsed(t, c.rules).Match(claim)
			require.NoError(t, err)
			var got []string
			for _, config := range configs {
				got = append(got, config.Duration.Duration.String())
			}
			assert.Equal(t, c.want, strings.Join(got, " "))
			assert.Equal(t, []int{c.namespaces, c.pods}, []int{*namespaces, *pods}, "the API server is asked only where it must be, and once")
		})
	}
}

func TestMatch_LabelsUnknown_DefaultLeftOut(t *testing.T) {
	t.Parallel()
	claim, _, _ := labelled("a", nil, nil)
	claim.NamespaceLabels = func() (map[string]string, error) { return nil, errors.New("forbidden") }
	configs, err := parsed(t, "defaults: [{namespaceSelector: {}, config: {duration: 1s}}, {config: {duration: 2s}}]").Match(claim)
	require.EqualError(t, err, "profiler.defaults[0] is ignored: forbidden")
	require.Len(t, configs, 1)
	assert.Equal(t, "2s", configs[0].Duration.Duration.String())
}

// TestMatch_LabelsUnknown_FailClosedSaid: the error shows whether a claim may be prepared without the omitted default.
func TestMatch_LabelsUnknown_FailClosedSaid(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]bool{
		"namespaceSelector: {}, config: {failurePolicy: FailClosed}":                   true,
		"podSelector: {}, config: {failurePolicy: FailClosed, enabled: true}":          true,
		"namespaceSelector: {}, config: {failurePolicy: FailOpen}":                     false,
		"namespaceSelector: {}, config: {}":                                            false,
		"namespaceSelector: {}, config: {failurePolicy: FailClosed, enabled: false}":   false,
		"namespaces: [b], podSelector: {}, config: {failurePolicy: FailClosed}":        false,
		"namespaces: [a], config: {failurePolicy: FailClosed, duration: 1s, args: []}": false,
	} {
		claim, _, _ := labelled("a", nil, nil)
		unknown := func() (map[string]string, error) { return nil, errors.New("forbidden") }
		claim.NamespaceLabels, claim.PodLabels = unknown, unknown
		_, err := parsed(t, "defaults: [{"+raw+"}]").Match(claim)
		_, got := errors.AsType[*Required](err)
		assert.Equal(t, want, got, raw)
	}
}

func TestLimit_Policy_RefusedOrLowered(t *testing.T) {
	t.Parallel()
	const tight = "policy: {maxBytes: 1Gi, maxRetention: 24h, namespaces: [a, b]}"
	for name, c := range map[string]struct{ rules, namespace, config, want, bytes, retention string }{
		"no policy":           {"", "a", "", "", "", ""},
		"raw switches":        {"", "a", "args: [--cuda-memory-usage=true]", "ProfilerConfig.args are not allowed: profiler.policy.args is Deny", "", ""},
		"raw switches, Deny":  {"policy: {args: Deny}", "a", "args: [--cuda-memory-usage=true]", "ProfilerConfig.args are not allowed: profiler.policy.args is Deny", "", ""},
		"raw switches, Allow": {"policy: {args: Allow}", "a", "args: [--cuda-memory-usage=true]", "", "", ""},
		"no raw switches":     {"", "a", "args: []", "", "", ""},
		"namespace":           {tight, "c", "", "profiles are not allowed in namespace c; profiler.policy.namespaces allows: a, b", "", ""},
		"defaults lowered":    {tight, "b", "", "", "1Gi", "24h0m0s"},
		"less is kept":        {tight, "a", "output: {maxBytes: 1Mi, retention: 1m, fileName: x}", "", "1Mi", "1m0s"},
		"as much":             {tight, "a", "output: {maxBytes: 1024Mi, retention: 1440m}", "", "1Gi", "24h0m0s"},
		"too many bytes":      {tight, "a", "output: {maxBytes: 2Gi}", "ProfilerConfig.output.maxBytes must be less than or equal to profiler.policy.maxBytes, 1Gi, got 2Gi", "", ""},
		"too long":            {tight, "a", "output: {retention: 25h}", "ProfilerConfig.output.retention must be less than or equal to profiler.policy.maxRetention, 24h0m0s, got 25h0m0s", "", ""},
		"generous":            {"policy: {maxBytes: 1Ti, maxRetention: 9000h}", "a", "", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := profiler(t, c.config)
			before := config.Output
			err := parsed(t, c.rules).Policy.Limit(c.namespace, config)
			if c.want != "" {
				require.EqualError(t, err, c.want)
				return
			}
			require.NoError(t, err)
			var size, retention string
			if config.Output.MaxBytes != nil {
				size = config.Output.MaxBytes.String()
			}
			if config.Output.Retention != nil {
				retention = config.Output.Retention.Duration.String()
			}
			assert.Equal(t, []string{c.bytes, c.retention}, []string{size, retention})
			if before != nil {
				assert.Equal(t, before.FileName, config.Output.FileName)
			}
		})
	}
}

func TestLimit_MaxDuration_RefusedOrSet(t *testing.T) {
	t.Parallel()
	const hour = "policy: {maxDuration: 1h}"
	const refused = "ProfilerConfig.captureRange Repeat is not allowed: it records each range to its end, but profiler.policy.maxDuration is 1h0m0s"
	for name, c := range map[string]struct{ rules, config, want, duration string }{
		"no policy":               {"", "", "", ""},
		"no policy, longest":      {"", "duration: 24h", "", "24h0m0s"},
		"unset":                   {hour, "", "", "1h0m0s"},
		"unset, by hand":          {hour, "start: Manual", "", "1h0m0s"},
		"shorter":                 {hour, "duration: 1ms", "", "1ms"},
		"as long":                 {hour, "duration: 60m", "", "1h0m0s"},
		"longer":                  {hour, "duration: 1h0m0.001s", "ProfilerConfig.duration must be less than or equal to profiler.policy.maxDuration, 1h0m0s, got 1h0m0.001s", ""},
		"every range":             {hour, "start: NVTX\nnvtxRange: a\ncaptureRange: Repeat", refused, ""},
		"every range, no policy":  {"", "start: NVTX\nnvtxRange: a\ncaptureRange: Repeat", "", ""},
		"one range":               {hour, "start: NVTX\nnvtxRange: a\ncaptureRange: First", "", "1h0m0s"},
		"counters, nothing other": {hour, "injection: None", "", "1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := profiler(t, c.config)
			err := parsed(t, c.rules).Policy.Limit("a", config)
			if c.want != "" {
				require.EqualError(t, err, c.want)
				return
			}
			require.NoError(t, err)
			duration := ""
			if config.Duration != nil {
				duration = config.Duration.Duration.String()
			}
			assert.Equal(t, c.duration, duration)
			config.Default()
			assert.NoError(t, config.Validate())
		})
	}
}

// TestLimit_DurationReset_Set: merging with captureRange Repeat leaves a duration of 0, which stands for none.
func TestLimit_DurationReset_Set(t *testing.T) {
	t.Parallel()
	var merged *v1alpha1.ProfilerConfig
	for _, layer := range []string{"start: NVTX\nnvtxRange: a\nduration: 2h", "captureRange: Repeat", "captureRange: First"} {
		var err error
		merged, err = v1alpha1.MergeProfiler(merged, profiler(t, layer), v1alpha1.FromClass)
		require.NoError(t, err)
	}
	rules := parsed(t, "policy: {maxDuration: 1h}")
	require.NoError(t, rules.Policy.Limit("a", merged))
	assert.Equal(t, time.Hour, merged.Duration.Duration)
	merged.Duration.Duration = time.Minute
	assert.Equal(t, time.Hour, rules.Policy.MaxDuration.Duration, "the policy is not shared with configurations")
}

// TestMatch_ArmOnDemand_ForClaimsThatAskForNothing: one default makes processes profilable later.
func TestMatch_ArmOnDemand_ForClaimsThatAskForNothing(t *testing.T) {
	t.Parallel()
	claim, _, _ := labelled("a", nil, nil)
	configs, err := parsed(t, "defaults: [{namespaces: [a], config: {arm: OnDemand}}]").Match(claim)
	require.NoError(t, err)
	require.Len(t, configs, 1)
	assert.Equal(t, v1alpha1.ArmOnDemand, *configs[0].Arm)
}

// profiler decodes the fields of a ProfilerConfig.
func profiler(t *testing.T, fields string) *v1alpha1.ProfilerConfig {
	t.Helper()
	decoded, err := v1alpha1.Decode([]byte("apiVersion: gpu.prism.dev/v1alpha1\nkind: ProfilerConfig\n" + fields))
	require.NoError(t, err)
	return decoded.(*v1alpha1.ProfilerConfig)
}

func TestParse_Invalid_Refused(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"policies: {}":                                                     `unknown field "policies"; valid fields: policy, defaults`,
		"policy: {arg: Deny}":                                              `policy: unknown field "arg"; valid fields: args, namespaces, maxBytes, maxRetention, maxDuration`,
		"policy: {args: Maybe}":                                            `policy.args: unsupported value "Maybe"; supported values: Deny, Allow`,
		"policy: {maxBytes: 0}":                                            "policy.maxBytes: must be greater than 0, got 0",
		"policy: {maxRetention: -1s}":                                      "policy.maxRetention: must be greater than 0s, got -1s",
		"policy: {maxDuration: 0s}":                                        "policy.maxDuration: must be whole seconds between 1s and 24h0m0s, got 0s",
		"policy: {maxDuration: 1500ms}":                                    "policy.maxDuration: must be whole seconds between 1s and 24h0m0s, got 1.5s",
		"policy: {maxDuration: 86401s}":                                    "policy.maxDuration: must be whole seconds between 1s and 24h0m0s, got 24h0m1s",
		"defaults: [{config: {laser: 1}}]":                                 `defaults[0].config: unknown field "laser"`,
		"defaults: [{config: {kind: GPUConfig}}]":                          "defaults[0].config: must be a ProfilerConfig of gpu.prism.dev/v1alpha1, got GPUConfig of ",
		"defaults: [{config: {claimOverride: Forbidden}}]":                 "defaults[0].config.claimOverride: must not be set here; only a DeviceClass may set it",
		"defaults: [{config: {duration: 0s}}]":                             "defaults[0].config: ProfilerConfig: duration: must be between",
		"defaults: [{config: {}, podSelector: {matchLabels: {'a b': c}}}]": "defaults[0].podSelector: ",
		"defaults: [{config: {}, namespaceSelector: {matchExpressions: [{key: a, operator: Like}]}}]": "defaults[0].namespaceSelector: ",
		"defaults: [" + strings.Repeat("{config: {}},", maxDefaults+1) + "]":                          "defaults: must have at most 64 items, got 65",
		"[": "",
	} {
		_, err := Parse([]byte(raw))
		require.ErrorContains(t, err, want, raw)
	}
	for _, raw := range []string{"", " \n", "{}", "policy: {maxDuration: 1s}", "policy: {maxDuration: 24h}", "defaults: [{config: {apiVersion: gpu.prism.dev/v1alpha1, kind: ProfilerConfig}}]", `{"policy": {"args": "Allow"}}`} {
		_, err := Parse([]byte(raw))
		require.NoError(t, err, raw)
	}
}

// FuzzParse checks that no document panics, and that a valid document can be matched and limits every configuration, also its duration.
func FuzzParse(f *testing.F) {
	for _, raw := range []string{"", "{}", "policy: {args: Allow, maxBytes: 1}", "policy: {maxDuration: 1h}\ndefaults: [{config: {duration: 2h}}]", "defaults: [{namespaceSelector: {matchLabels: {a: b}}, config: {}}]", "["} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Parse(raw)
		if err != nil {
			return
		}
		claim, namespaces, pods := labelled("a", nil, nil)
		configs, err := r.Match(claim)
		require.NoError(t, err)
		require.LessOrEqual(t, *namespaces+*pods, 2)
		merged := &v1alpha1.ProfilerConfig{}
		for _, config := range configs {
			merged, err = v1alpha1.MergeProfiler(merged, config, v1alpha1.FromDefaults)
			require.NoError(t, err)
		}
		if longest := r.Policy.MaxDuration; r.Policy.Limit("a", merged) == nil && longest != nil {
			require.LessOrEqual(t, merged.Duration.Duration, longest.Duration)
		}
	})
}
