package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func env(pairs map[string]string) func(string) string {
	return func(k string) string { return pairs[k] }
}

func TestLoadPlugin_SeveralSources_Precedence(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	require.NoError(t, os.WriteFile(file, []byte("driver: {root: /file, failOnInitError: true}\nserving: {logVerbosity: 3}\nnodeName: from-file\n"), 0o600))
	p, err := LoadPlugin([]string{"--config", file, "--driver-root=/flag"}, env(map[string]string{
		"PRISM_DRIVER_ROOT": "/env", "PRISM_LOG_VERBOSITY": "5", "NODE_NAME": "from-env", "POD_UID": "uid",
	}))
	require.NoError(t, err)
	assert.Equal(t, "/flag", p.Driver.Root, "flag over environment")
	assert.Equal(t, 5, p.Serving.LogVerbosity, "environment over file")
	require.NotNil(t, p.Driver.FailOnInitError)
	assert.True(t, *p.Driver.FailOnInitError, "file over default")
	assert.Equal(t, "/var/run/cdi", p.Paths.CDIRoot, "default")
	assert.Equal(t, "from-env", p.NodeName)
	assert.Equal(t, "uid", p.PodUID)
	assert.Equal(t, "/var/lib/kubelet/plugins/gpu.prism.dev", p.PluginDir())
}

// TestStateDir_Unset_FollowsTheDriverName: two drivers on a node share no directory.
func TestStateDir_Unset_FollowsTheDriverName(t *testing.T) {
	t.Parallel()
	p, err := LoadPlugin([]string{"--driver-name=gpu.example.com"}, env(map[string]string{"NODE_NAME": "n"}))
	require.NoError(t, err)
	assert.Equal(t, "/var/lib/gpu.example.com/programs", p.ProgramsDir())
	assert.Equal(t, "/var/lib/kubelet/plugins/gpu.example.com/bin", p.FormerProgramsDir())
	p, err = LoadPlugin(nil, env(map[string]string{"NODE_NAME": "n", "PRISM_STATE_DIR": "/data/prism"}))
	require.NoError(t, err)
	assert.Equal(t, "/data/prism/programs", p.ProgramsDir())
}

// TestCollector_Environment_Set: the chart sets it so.
func TestCollector_Environment_Set(t *testing.T) {
	t.Parallel()
	p, err := LoadPlugin(nil, env(map[string]string{
		"NODE_NAME": "n", "PRISM_PROFILER": "true", "PRISM_COLLECTOR": "true", "PRISM_COLLECTOR_VERSION": "2025.5.1",
	}))
	require.NoError(t, err)
	assert.True(t, p.Profiler.Collector)
	assert.Equal(t, "2025.5.1", p.Profiler.CollectorVersion)
	assert.Equal(t, "/var/lib/gpu.prism.dev/collector", p.CollectorDir())
	p, err = LoadPlugin(nil, env(map[string]string{"NODE_NAME": "n"}))
	require.NoError(t, err)
	assert.False(t, p.Profiler.Collector)
}

func TestRunDir_Unset_FollowsTheDriverName(t *testing.T) {
	t.Parallel()
	p, err := LoadPlugin([]string{"--driver-name=gpu.example.com"}, env(map[string]string{"NODE_NAME": "n"}))
	require.NoError(t, err)
	assert.Equal(t, "/run/gpu.example.com/hook.sock", p.HookSocket())
	p, err = LoadPlugin([]string{"--run-dir=/data/run"}, env(map[string]string{"NODE_NAME": "n"}))
	require.NoError(t, err)
	assert.Equal(t, "/data/run/hook.sock", p.HookSocket())
	_, err = LoadPlugin([]string{"--run-dir=run"}, env(map[string]string{"NODE_NAME": "n"}))
	require.ErrorContains(t, err, `--run-dir: must be an absolute path, got "run"`)
}

func TestLoadPlugin_BothVariables_PrefixedOneWins(t *testing.T) {
	t.Parallel()
	p, err := LoadPlugin(nil, env(map[string]string{"NODE_NAME": "plain", "PRISM_NODE_NAME": "ours"}))
	require.NoError(t, err)
	assert.Equal(t, "ours", p.NodeName)
}

// TestFailOnInitError_Unset_Nil: the value of the node configuration applies then.
func TestFailOnInitError_Unset_Nil(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args []string
		env  string
		want any
	}{
		"open": {nil, "", nil}, "flag": {[]string{"--fail-on-init-error"}, "false", true}, "flag, off": {[]string{"--fail-on-init-error=false"}, "true", false},
		"environment": {nil, "false", false},
	} {
		p, err := LoadPlugin(c.args, env(map[string]string{"NODE_NAME": "n", "PRISM_FAIL_ON_INIT_ERROR": c.env}))
		require.NoError(t, err, name)
		if c.want == nil {
			assert.Nil(t, p.Driver.FailOnInitError, name)
			continue
		}
		require.NotNil(t, p.Driver.FailOnInitError, name)
		assert.Equal(t, c.want, *p.Driver.FailOnInitError, name)
	}
	_, err := LoadPlugin(nil, env(map[string]string{"NODE_NAME": "n", "PRISM_FAIL_ON_INIT_ERROR": "maybe"}))
	require.ErrorContains(t, err, `environment variable PRISM_FAIL_ON_INIT_ERROR="maybe": must be true or false, got "maybe"`)
}

// TestFallbacks_SetAgain_Replaced: setting a flag again does not add to the list.
func TestFallbacks_SetAgain_Replaced(t *testing.T) {
	t.Parallel()
	p, err := LoadPlugin(nil, env(map[string]string{"NODE_NAME": "n"}))
	require.NoError(t, err)
	assert.Equal(t, Names{"named", "single"}, p.NodeConfig.Fallbacks)
	fromEnv := env(map[string]string{"NODE_NAME": "n", "PRISM_NODE_CONFIG_FALLBACKS": "empty"})
	p, err = LoadPlugin(nil, fromEnv)
	require.NoError(t, err)
	assert.Equal(t, Names{"empty"}, p.NodeConfig.Fallbacks)
	p, err = LoadPlugin([]string{"--node-config-fallbacks=single,empty"}, fromEnv)
	require.NoError(t, err)
	assert.Equal(t, Names{"single", "empty"}, p.NodeConfig.Fallbacks)
	p, err = LoadPlugin([]string{"--node-config-fallbacks="}, fromEnv)
	require.NoError(t, err)
	assert.Empty(t, p.NodeConfig.Fallbacks)
}

func TestLoadPlugin_InvalidValues_Refused(t *testing.T) {
	t.Parallel()
	typo := filepath.Join(t.TempDir(), "typo.yaml")
	require.NoError(t, os.WriteFile(typo, []byte("driverNam: x\n"), 0o600))
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"no node name":         {want: "--node-name: required"},
		"driver name":          {args: []string{"--driver-name=GPU_1", "--node-name=n"}, want: `--driver-name: must be a DNS subdomain of at most 63 characters, got "GPU_1"`},
		"relative path":        {args: []string{"--cdi-root=cdi", "--node-name=n"}, want: `--cdi-root: must be an absolute path, got "cdi"`},
		"relative socket":      {args: []string{"--kubelet-pod-resources-socket=s", "--node-name=n"}, want: `--kubelet-pod-resources-socket: must be an absolute path, got "s"`},
		"relative state":       {args: []string{"--state-dir=s", "--node-name=n"}, want: `--state-dir: must be an absolute path, got "s"`},
		"relative driver root": {args: []string{"--driver-root=x", "--node-name=n"}, want: `--driver-root: must be an absolute path of the host, got "x"`},
		"search directory": {
			args: []string{"--driver-search-dirs=/a,b", "--node-name=n"}, want: `--driver-search-dirs: must be absolute paths without colons, got "b"`,
		},
		"endpoint":    {args: []string{"--http-endpoint=8080", "--node-name=n"}, want: `--http-endpoint: must be <address>:<port>, got "8080"`},
		"verbosity":   {args: []string{"-v=11", "--node-name=n"}, want: "--log-verbosity: must be between 0 and 10, got 11"},
		"format":      {args: []string{"--log-format=xml", "--node-name=n"}, want: `--log-format: unsupported value "xml"; supported values: text, json`},
		"no requests": {args: []string{"--kube-api-qps=0", "--node-name=n"}, want: "--kube-api-burst must be greater than or equal to 1, got 0 and 400"},
		"scheduler": {
			args: []string{"--scheduler-version=newest", "--node-name=n"}, want: `--scheduler-version: must be a version such as 1.36.2, got "newest"`,
		},
		"two configurations": {
			args: []string{"--node-config=/a", "--node-config-map=n/m", "--node-name=n"}, want: "--node-config: must not be set together with --node-config-map",
		},
		"relative configuration": {args: []string{"--node-config=a", "--node-name=n"}, want: `--node-config: must be an absolute path, got "a"`},
		"map without namespace":  {args: []string{"--node-config-map=m", "--node-name=n"}, want: `--node-config-map: must be <namespace>/<name>, got "m"`},
		"name without map":       {args: []string{"--node-config-name=x", "--node-name=n"}, want: "--node-config-name: requires --node-config-map"},
		"label":                  {args: []string{"--node-config-label=a b", "--node-name=n"}, want: `--node-config-label: must be a label key, got "a b"`},
		"fallback":               {args: []string{"--node-config-fallbacks=named,first", "--node-name=n"}, want: `--node-config-fallbacks: unsupported value "first"; supported values: named, single, empty`},
		"monitor devices":        {args: []string{"--monitor-devices=PerGPU", "--node-name=n"}, want: `--monitor-devices: unsupported value "PerGPU"; supported values: Never, PerNode`},
		"profiler map":           {args: []string{"--profiler-config-map=m", "--node-name=n"}, want: `--profiler-config-map: must be <namespace>/<name>, got "m"`},
		"reports endpoint":       {args: []string{"--reports-endpoint=8444", "--node-name=n"}, want: `--reports-endpoint: must be <address>:<port>, got "8444"`},
		"reports client name":    {args: []string{"--reports-client-name=prism-node", "--node-name=n"}, want: "--reports-client-name: must be a DNS name other than prism-node"},
		"reports certificate":    {args: []string{"--reports-endpoint=:8444", "--node-name=n"}, want: "--reports-certificate: required with --reports-endpoint"},
		"profiler, no time":      {args: []string{"--profiler-start-timeout=0s", "--node-name=n"}, want: "--profiler-start-timeout: must be whole seconds from 1s to 1h, got 0s"},
		"profiler, half second":  {args: []string{"--profiler-start-timeout=1500ms", "--node-name=n"}, want: "must be whole seconds from 1s to 1h, got 1.5s"},
		"profiler, no report":    {args: []string{"--profiler-report-timeout=0s", "--node-name=n"}, want: "--profiler-report-timeout: must be whole seconds from 1s to 1h, got 0s"},
		"profiler, late report":  {args: []string{"--profiler-report-timeout=61m", "--node-name=n"}, want: "--profiler-report-timeout: must be whole seconds from 1s to 1h, got 1h1m0s"},
		"profiler, half report":  {args: []string{"--profiler-report-timeout=90500ms", "--node-name=n"}, want: "must be whole seconds from 1s to 1h, got 1m30.5s"},
		"collector, no version":  {args: []string{"--profiler", "--collector", "--node-name=n"}, want: "--collector-version: required with --collector: a version such as 2025.5.1"},
		"collector, no profiler": {args: []string{"--collector", "--collector-version=2025.5.1", "--node-name=n"}, want: "--collector: requires --profiler"},
		"profiler, a day":        {args: []string{"--profiler-start-timeout=24h", "--node-name=n"}, want: "must be whole seconds from 1s to 1h, got 24h0m0s"},
		"argument":               {args: []string{"run"}, want: `unexpected argument "run"`},
		"unknown flag":           {args: []string{"--colour"}, want: "unknown flag: --colour"},
		"bad environment":        {env: map[string]string{"PRISM_PPROF": "perhaps"}, want: `environment variable PRISM_PPROF="perhaps"`},
		"absent file":            {args: []string{"--config=/does/not/exist"}, want: "file not found: /does/not/exist"},
		"unknown key":            {args: []string{"--config=" + typo}, want: `unknown field "driverNam"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := LoadPlugin(c.args, env(c.env))
			require.ErrorContains(t, err, c.want)
		})
	}
}
