package commands

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
	"github.com/prism-gpu/prism/pkg/profiler/session"
)

const id = "01234567-89ab-4def-8123-456789abcdef"

var now = time.Unix(1_800_000_000, 0)

// several returns that many names.
func several(count int) (names []string) {
	for i := range count {
		names = append(names, fmt.Sprintf("1a2b3c4d-w%d-0123456789abcdef", i))
	}
	return names
}

func at(ahead time.Duration) *metav1.MicroTime      { return new(metav1.NewMicroTime(now.Add(ahead))) }
func lasting(length time.Duration) *metav1.Duration { return &metav1.Duration{Duration: length} }

// TestValidate_EachRule_NamesTheField: a valid command without an error, and each error with its field.
func TestValidate_EachRule_NamesTheField(t *testing.T) {
	t.Parallel()
	type command = v1alpha1.SessionCommandSpec
	start := func(change func(c *command)) command {
		c := command{ID: id, Verb: v1alpha1.SessionStart, Sessions: []string{"a", "b"}}
		change(&c)
		return c
	}
	arm := func(change func(c *command)) command {
		c := command{ID: id, Verb: v1alpha1.SessionArm, Claims: []string{"train.x"}}
		change(&c)
		return c
	}
	stop := func(change func(c *command)) command {
		return start(func(c *command) {
			c.Verb = v1alpha1.SessionStop
			change(c)
		})
	}
	for name, c := range map[string]struct {
		command command
		want    string
	}{
		"start":              {start(func(*command) {}), ""},
		"arm":                {arm(func(*command) {}), ""},
		"disarm":             {arm(func(c *command) { c.Verb = v1alpha1.SessionDisarm }), ""},
		"stop a selection":   {stop(func(c *command) { c.Sessions, c.Selection = nil, &v1alpha1.SessionSelection{} }), ""},
		"no id":              {start(func(c *command) { c.ID = "" }), "spec.id: Required value"},
		"another id":         {start(func(c *command) { c.ID = strings.ToUpper(id) }), "spec.id: Invalid value"},
		"no verb":            {start(func(c *command) { c.Verb = "" }), `spec.verb: Unsupported value: "": supported values: "Start", "Stop", "Cancel", "Arm", "Disarm"`},
		"another verb":       {start(func(c *command) { c.Verb = "start" }), "spec.verb: Unsupported value"},
		"no target":          {start(func(c *command) { c.Sessions = []string{} }), "spec.sessions: Required value"},
		"both":               {start(func(c *command) { c.Selection = &v1alpha1.SessionSelection{} }), "spec.selection: Forbidden"},
		"start a claim":      {start(func(c *command) { c.Claims = []string{"a"} }), "spec.claims: Forbidden"},
		"arm nothing":        {arm(func(c *command) { c.Claims = nil }), "spec.claims: Required value"},
		"arm a session":      {arm(func(c *command) { c.Sessions = []string{"a"} }), "spec.sessions: Forbidden"},
		"arm a selection":    {arm(func(c *command) { c.Selection = &v1alpha1.SessionSelection{} }), "spec.selection: Forbidden"},
		"1,000":              {start(func(c *command) { c.Sessions = several(1000) }), ""},
		"1,001":              {start(func(c *command) { c.Sessions = several(1001) }), "spec.sessions: Too many: 1001: must have at most 1000 items"},
		"1,001 claims":       {arm(func(c *command) { c.Claims = several(1001) }), "spec.claims: Too many"},
		"a path":             {start(func(c *command) { c.Sessions[1] = "../a" }), "spec.sessions[1]: Invalid value"},
		"a claim's path":     {arm(func(c *command) { c.Claims[0] = "a/b" }), "spec.claims[0]: Invalid value"},
		"twice":              {start(func(c *command) { c.Sessions[1] = "a" }), `spec.sessions[1]: Duplicate value: "a"`},
		"label selector":     {start(func(c *command) { c.Sessions, c.Selection = nil, &v1alpha1.SessionSelection{LabelSelector: "a=b=c"} }), "spec.selection.labelSelector: Invalid value"},
		"field selector":     {start(func(c *command) { c.Sessions, c.Selection = nil, &v1alpha1.SessionSelection{FieldSelector: "x=y"} }), "spec.selection.fieldSelector: Invalid value: \"x=y\": x is not supported"},
		"duration":           {start(func(c *command) { c.Duration = lasting(24 * time.Hour) }), ""},
		"no duration":        {start(func(c *command) { c.Duration = lasting(0) }), "spec.duration: Invalid value"},
		"negative duration":  {start(func(c *command) { c.Duration = lasting(-1) }), "spec.duration: Invalid value"},
		"long duration":      {start(func(c *command) { c.Duration = lasting(24*time.Hour + 1) }), `spec.duration: Invalid value: "24h0m0.000000001s": must be greater than 0 and at most 24h0m0s`},
		"window":             {start(func(c *command) { c.At, c.Duration = at(session.MaxAhead), lasting(1) }), ""},
		"window just past":   {start(func(c *command) { c.At, c.Duration = at(-maxPast), lasting(1) }), ""},
		"window past":        {start(func(c *command) { c.At, c.Duration = at(-maxPast-1), lasting(1) }), "spec.at: Invalid value"},
		"window far ahead":   {start(func(c *command) { c.At, c.Duration = at(session.MaxAhead+1), lasting(1) }), "spec.at: Invalid value"},
		"window of no end":   {start(func(c *command) { c.At = at(time.Second) }), "spec.duration: Required value"},
		"hertz":              {start(func(c *command) { c.SamplingFrequencyHz = new(int32(8000)) }), ""},
		"few hertz":          {start(func(c *command) { c.SamplingFrequencyHz = new(int32(99)) }), "spec.samplingFrequencyHz: Invalid value: 99: must be between 100 and 8000, inclusive"},
		"many hertz":         {start(func(c *command) { c.SamplingFrequencyHz = new(int32(8001)) }), "spec.samplingFrequencyHz: Invalid value"},
		"backtrace":          {start(func(c *command) { c.Backtrace = new("DWARF") }), ""},
		"another backtrace":  {start(func(c *command) { c.Backtrace = new("dwarf\nid=1") }), "spec.backtrace: Unsupported value"},
		"stop at":            {stop(func(c *command) { c.At, c.Duration = at(1), lasting(1) }), "[spec.at: Forbidden: has no effect if verb is Stop, spec.duration: Forbidden"},
		"stop with hertz":    {stop(func(c *command) { c.SamplingFrequencyHz = new(int32(100)) }), "spec.samplingFrequencyHz: Forbidden"},
		"arm with backtrace": {arm(func(c *command) { c.Backtrace = new("DWARF") }), "spec.backtrace: Forbidden"},
	} {
		got := ""
		if err := Validate(&c.command, now).ToAggregate(); err != nil {
			got = err.Error()
		}
		if c.want == "" {
			assert.Empty(t, got, name)
		} else {
			assert.True(t, strings.HasPrefix(got, c.want), "%s: %s", name, got)
		}
	}
	many := start(func(c *command) { c.Sessions = strings.Split(strings.Repeat("/", 999), "") })
	assert.Len(t, Validate(&many, now), maxErrors)
}

func TestForNodes_EachField_Sent(t *testing.T) {
	t.Parallel()
	assert.Equal(t, session.Command{
		ID: id, Verb: v1alpha1.SessionStart, Namespace: "team", NamespaceUID: "uid", Selection: &session.Selection{Labels: "a=b", Fields: "spec.node=n"},
		At: at(1).Time, Duration: time.Second, SamplingFrequencyHz: 100, Backtrace: "LBR", DryRun: true,
	}, ForNodes(&v1alpha1.SessionCommandSpec{
		ID: id, Verb: v1alpha1.SessionStart, Selection: &v1alpha1.SessionSelection{LabelSelector: "a=b", FieldSelector: "spec.node=n"}, At: at(1),
		Duration: lasting(time.Second), SamplingFrequencyHz: new(int32(100)), Backtrace: new("LBR"),
	}, "team", "uid", true))
	named := ForNodes(&v1alpha1.SessionCommandSpec{ID: id, Verb: v1alpha1.SessionStop, Sessions: []string{"a"}, Claims: []string{"b"}}, "team", "uid", false)
	assert.Equal(t, session.Command{ID: id, Verb: v1alpha1.SessionStop, Namespace: "team", NamespaceUID: "uid", Sessions: []string{"a"}, Claims: []string{"b"}}, named)
	assert.Equal(t, []string{"a", "b"}, Targets(named))
}
