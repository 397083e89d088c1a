package reports

import (
	"net/http"
	"sync"
	"time"
)

// clock compares the clock of the server with the clock of this machine.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

// wrap reads the header Date of each response.
func (c *clock) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err != nil {
			return nil, err
		}
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			c.mu.Lock()
			c.ahead = time.Until(date)
			c.mu.Unlock()
		}
		return response, nil
	})
}

func (c *clock) offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// roundTrip implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
