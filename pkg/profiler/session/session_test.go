package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/prism-gpu/prism/api/profiles/v1alpha1"
)

const id = "01234567-89ab-4def-8123-456789abcdef"

func TestControl_Encode_ParsedAlikeAndBounded(t *testing.T) {
	t.Parallel()
	for _, c := range []Control{
		{ID: id, Verb: v1alpha1.SessionStop},
		{
			ID: id, Verb: v1alpha1.SessionStart, At: time.Unix(1<<33, 5).UTC(), Until: time.Unix(1<<33, 7).UTC(), SamplingFrequencyHz: 8000,
			Backtrace: "FramePointer",
		},
	} {
		raw, err := c.Encode()
		require.NoError(t, err)
		assert.LessOrEqual(t, len(raw), MaxControl)
		parsed, ok := ParseControl(raw)
		assert.True(t, ok)
		assert.Equal(t, c, parsed)
	}
	for _, c := range []Control{
		{ID: "x", Verb: v1alpha1.SessionStop}, {ID: id, Verb: "x"}, {ID: id, Verb: v1alpha1.SessionArm},
		{ID: id, Verb: v1alpha1.SessionStart, Backtrace: "x\nid=1"}, {ID: id + "\nverb=Stop", Verb: v1alpha1.SessionStop},
	} {
		_, err := c.Encode()
		assert.Error(t, err, c)
	}
}

func TestParseAnswers_ContainersWord_Bounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(100, 0).UTC()
	line := func(text string) []Answer { return ParseAnswers([]byte(text+"\n"), now) }
	assert.Equal(t, []Answer{{
		ID: id, Outcome: Recorded, Begun: new(time.Unix(1, 0).UTC()), Ended: new(time.Unix(2, 0).UTC()), Report: "s7-0123456789abcdef",
		Message: "it said: a=b message=c",
	}}, line("id="+id+" outcome=Recorded begun=1000000000 ended=2000000000 report=s7-0123456789abcdef message=it said: a=b message=c"))
	assert.Equal(t, []Answer{{ID: id, Outcome: Failed}}, line("id="+id+" outcome=Failed begun=101000000000 ended=-1 report=../s7 new=1"))
	for _, foreign := range []string{"", "id=" + id, "id=x outcome=Recorded", "id=" + id + " outcome=Open", "id=" + id + " outcome=NoAnswer"} {
		assert.Empty(t, line(foreign), foreign)
	}
	assert.Empty(t, ParseAnswers([]byte("id="+id+" outcome=Recorded"), now), "a line that is not complete")
	var many strings.Builder
	for i := range 20 {
		fmt.Fprintf(&many, "id=%s outcome=Recorded begun=%d\n", id, i+1)
	}
	kept := ParseAnswers([]byte(many.String()), now)
	assert.Len(t, kept, KeptAnswers)
	assert.Equal(t, time.Unix(0, 20).UTC(), *kept[KeptAnswers-1].Begun)
}

func FuzzParse(f *testing.F) {
	raw, err := Control{ID: id, Verb: v1alpha1.SessionStart, At: time.Unix(1, 0)}.Encode()
	require.NoError(f, err)
	f.Add(raw)
	f.Add([]byte("id=" + id + " outcome=Recorded begun=1 message=x\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if c, ok := ParseControl(raw); ok {
			again, err := c.Encode()
			require.NoError(t, err)
			assert.LessOrEqual(t, len(again), MaxControl)
		}
		now := time.Unix(100, 0)
		for _, a := range ParseAnswers(raw, now) {
			assert.Regexp(t, ValidID, a.ID)
			assert.Contains(t, Outcomes, a.Outcome)
			assert.False(t, a.Begun != nil && a.Begun.After(now) || a.Ended != nil && a.Ended.After(now))
		}
	})
}
