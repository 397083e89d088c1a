package bench

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestQuantile_Samples_NearestRank(t *testing.T) {
	t.Parallel()
	var s Samples
	for i := 100; i > 0; i-- {
		s = append(s, time.Duration(i))
	}
	assert.Equal(t, time.Duration(50), s.P50())
	assert.Equal(t, time.Duration(99), s.P99())
	assert.Equal(t, time.Duration(100), s.Quantile(1))
	assert.Equal(t, time.Duration(1), s.Quantile(0))
	assert.Equal(t, time.Duration(7), Samples{7}.P99())
	assert.Equal(t, time.Duration(2), Samples{3, 1, 2}.P50())
	assert.Zero(t, Samples(nil).P50())
}

func TestMilliseconds_Durations_DigitsThatMatter(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "0.021 ms", milliseconds(21*time.Microsecond))
	assert.Equal(t, "0.65 ms", milliseconds(654*time.Microsecond))
	assert.Equal(t, "12.3 ms", milliseconds(12345*time.Microsecond))
	assert.Equal(t, "505 ms", milliseconds(505*time.Millisecond))
}
