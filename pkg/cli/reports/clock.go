package reports

import (
	"net/http"
	"sync"
	"time"
)

// Clock compares the clock of the server with the clock of this machine. The zero value is the clock of this machine.
type Clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

// Wrap reads the header Date of each response.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
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

// Now returns the time of the server, from the last response; before the first response it is the time of this machine.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// roundTrip implements http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
