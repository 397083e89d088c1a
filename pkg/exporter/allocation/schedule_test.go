package allocation

import (
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUsual_EachTime_AtMostAMinute: unknown or unreadable information is retried at least once a minute.
func TestUsual_EachTime_AtMostAMinute(t *testing.T) {
	t.Parallel()
	of := reflect.ValueOf(usual)
	for i := range of.NumField() {
		each := time.Duration(of.Field(i).Int())
		assert.Positive(t, each, of.Type().Field(i).Name)
		assert.LessOrEqual(t, each, time.Minute, of.Type().Field(i).Name)
	}
}

// TestContainers_IDWasUnknown_AskedAgainAfterAMinute: a container may be listed only after its first process.
func TestContainers_IDWasUnknown_AskedAgainAfterAMinute(t *testing.T) {
	t.Parallel()
	c := newContainers(runtimeSocket{}, usual, &sources{})
	now := time.Now()
	asks := func(after time.Duration) bool {
		_, ask := c.outermost([]string{id("a")}, now.Add(after))
		return ask
	}
	require.True(t, asks(0), "nothing was listed yet")
	c.take(nil, []string{id("a")}, now)
	assert.False(t, asks(0))
	assert.False(t, asks(time.Minute))
	assert.True(t, asks(time.Minute+time.Millisecond))
	c.take([]listed{{id: id("a")}}, nil, now.Add(2*time.Minute))
	found, ask := c.outermost([]string{id("a")}, now.Add(2*time.Minute))
	assert.Equal(t, id("a"), found)
	assert.False(t, ask)
}
