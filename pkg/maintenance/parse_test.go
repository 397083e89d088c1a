package maintenance_test

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/pkg/maintenance"
)

const driver = "gpu.example.com"

func TestParse_Commands_InOrder(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	commands, invalid := maintenance.Parse(map[string]string{
		"release.gpu.example.com/gpu-5d3f61a2":     "2026-01-02T15:04:05Z",
		"maintenance.gpu.example.com/gpu-5d3f61a2": "fan\nreplaced",
		"maintenance.gpu.example.com/all":          "",
		"heal.gpu.example.com/gpu-5d3f61a2":        "2026-01-02T16:04:05+01:00",
		"maintenance.other.com/all":                "of another driver",
		"gpu.example.com/gpu-5d3f61a2":             "no verb",
		"unrelated":                                "",
	}, driver)
	assert.Empty(t, invalid)
	require.Len(t, commands, 4)
	for i := range commands {
		assert.True(t, commands[i].Time.IsZero() || commands[i].Time.Equal(at))
		commands[i].Time = time.Time{}
	}
	assert.Equal(t, []maintenance.Command{
		{Verb: maintenance.Heal, GPU: "gpu-5d3f61a2", Key: "heal.gpu.example.com/gpu-5d3f61a2", Value: "2026-01-02T16:04:05+01:00"},
		{Verb: maintenance.Maintain, GPU: maintenance.All, Key: "maintenance.gpu.example.com/all"},
		{
			Verb: maintenance.Maintain, GPU: "gpu-5d3f61a2", Reason: "fan replaced", Key: "maintenance.gpu.example.com/gpu-5d3f61a2",
			Value: "fan\nreplaced",
		},
		{Verb: maintenance.Release, GPU: "gpu-5d3f61a2", Key: "release.gpu.example.com/gpu-5d3f61a2", Value: "2026-01-02T15:04:05Z"},
	}, commands)
}

func TestParse_InvalidAnnotation_OneSentence(t *testing.T) {
	t.Parallel()
	for key, c := range map[string]struct{ value, why string }{
		"maintenance.gpu.example.com/0":        {"x", `a GPU is named as its device, such as "gpu-5d3f61a2"`},
		"maintenance.gpu.example.com/gpu-":     {"x", `a GPU is named as its device, such as "gpu-5d3f61a2"`},
		"maintenance.gpu.example.com/gpu-XYZ":  {"x", `a GPU is named as its device, such as "gpu-5d3f61a2"`},
		"release.gpu.example.com/all":          {"2026-01-02T15:04:05Z", `"all" is supported by maintenance only; name one GPU`},
		"heal.gpu.example.com/all":             {"2026-01-02T15:04:05Z", `"all" is supported by maintenance only; name one GPU`},
		"release.gpu.example.com/gpu-5d3f61a2": {"2m", `"2m" is no time in RFC 3339, such as "2026-01-02T15:04:05Z"`},
		"heal.gpu.example.com/gpu-5d3f61a2":    {"", `"" is no time in RFC 3339, such as "2026-01-02T15:04:05Z"`},
	} {
		commands, invalid := maintenance.Parse(map[string]string{key: c.value}, driver)
		assert.Empty(t, commands, key)
		assert.Equal(t, []maintenance.Invalid{{Key: key, Value: c.value, Why: "Annotation " + key + " of the node is ignored: " + c.why}}, invalid)
	}
}

func TestParse_LongValues_Shortened(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 100_000)
	commands, invalid := maintenance.Parse(map[string]string{
		maintenance.Key(maintenance.Maintain, driver, "all"): long, maintenance.Key(maintenance.Heal, driver, "gpu-1"): long,
	}, driver)
	require.Len(t, commands, 1)
	require.Len(t, invalid, 1)
	assert.LessOrEqual(t, len(commands[0].Reason), 260)
	assert.True(t, utf8.ValidString(commands[0].Reason))
	assert.Less(t, len(invalid[0].Why), 300)
}

func TestCheckRelease_OutsideOfBounds_Refused(t *testing.T) {
	t.Parallel()
	now := time.Now()
	assert.Empty(t, maintenance.CheckRelease(now.Add(maintenance.ReleaseMax), now))
	assert.Empty(t, maintenance.CheckRelease(now.Add(1), now))
	assert.Equal(t, "its time has passed", maintenance.CheckRelease(now, now))
	assert.Equal(t, "its time is more than 10 minutes ahead", maintenance.CheckRelease(now.Add(maintenance.ReleaseMax+1), now))
}
