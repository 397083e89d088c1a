package bench

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// loadWorkers is the number of concurrent requests of each kind.
	loadWorkers = 8
	// betweenLists is the pause of a user between two lists.
	betweenLists = 200 * time.Millisecond
	// listLimit is far longer than a list takes.
	listLimit = 2 * time.Minute
	// askAgain is the time until the next request for a list if the answer does not set one.
	askAgain = time.Second
)

// requestKind is a kind of request for reports.
type requestKind int

const (
	listing requestKind = iota
	downloading
	deleting
	requestKinds
)

var kindNames = [requestKinds]string{"lists", "downloads", "deletions"}

// reportUser is a user of the API of reports.
type reportUser struct {
	client    *http.Client
	namespace string
	// url is the URL of the reports of the namespace.
	url string
	// names are the reports there. If the user deletes reports, the first keptReports stay, and are downloaded.
	names []string
}

// keptReports is the number of reports that are downloaded, and not deleted.
const keptReports = 64

// answers counts answers to requests of a kind by status code; 0 is no answer.
type answers map[int]int

// add adds the counts of others.
func (a answers) add(b answers) {
	for code, n := range b {
		a[code] += n
	}
}

// done returns the number of successful requests.
func (a answers) done() (n int) {
	for code := range a {
		if code/100 == 2 {
			n += a[code]
		}
	}
	return n
}

// others returns, as text, the answers that are neither successful nor refusals of too many requests, and their number n.
func (a answers) others() (n int, codes string) {
	var texts []string
	for _, code := range slices.Sorted(maps.Keys(a)) {
		if code/100 != 2 && code != http.StatusTooManyRequests {
			n += a[code]
			texts = append(texts, fmt.Sprintf("%d: %d", code, a[code]))
		}
	}
	if n == 0 {
		return 0, ""
	}
	return n, "(" + strings.Join(texts, ", ") + ")"
}

// load sends requests of each kind until the context ends, loadWorkers at once, each as soon as the last one has been answered. It repeats
// refused requests at once, whatever the answer says.
func (u *reportUser) load(ctx context.Context) [requestKinds]answers {
	var counted [requestKinds]answers
	var workers sync.WaitGroup
	var mu sync.Mutex
	for kind := range requestKinds {
		var number atomic.Int64
		counted[kind] = answers{}
		for range loadWorkers {
			workers.Go(func() {
				own := answers{}
				for {
					code := u.send(ctx, kind, int(number.Add(1)-1))
					if ctx.Err() != nil { // which aborted it
						break
					}
					own[code]++
				}
				mu.Lock()
				defer mu.Unlock()
				counted[kind].add(own)
			})
		}
	}
	workers.Wait()
	return counted
}

// send sends a numbered request, reads the whole answer, and returns the status code, or 0 if the connection broke.
func (u *reportUser) send(ctx context.Context, kind requestKind, number int) int {
	method, url := http.MethodGet, u.url
	if kind == downloading {
		url += "/" + u.names[number%keptReports] + "/content"
	}
	if kind == deleting {
		method = http.MethodDelete
		url += "/" + u.names[keptReports+number%(len(u.names)-keptReports)]
	}
	response, err := u.do(ctx, method, url)
	if err != nil {
		return 0
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return 0
	}
	return response.StatusCode
}

func (u *reportUser) do(ctx context.Context, method, url string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return nil, err
	}
	return u.client.Do(request)
}

// times lists the reports repeatedly for the duration, and returns the time of each list.
func (u *reportUser) times(ctx context.Context, long time.Duration) (took Samples, err error) {
	for begin := time.Now(); time.Since(begin) < long; pause(ctx, betweenLists) {
		one, err := timed(func() error { return u.complete(ctx, listLimit) })
		if err != nil {
			return took, err
		}
		took = append(took, one)
	}
	return took, nil
}

// complete lists until an answer contains all reports. It asks again when the answer says.
func (u *reportUser) complete(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		again, err := u.list(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("listing the reports of namespace %s: %w: %w", u.namespace, context.Cause(ctx), cmp.Or(last, err))
		}
		last = err
		pause(ctx, again)
	}
}

// maxAnswer limits how much of another answer is read.
const maxAnswer = 4 << 10

// list requests the reports once. If the answer is incomplete, err says what it contains, and again is the time until the next request.
func (u *reportUser) list(ctx context.Context) (again time.Duration, err error) {
	response, err := u.do(ctx, http.MethodGet, u.url)
	if err != nil {
		return askAgain, err
	}
	defer func() { _ = response.Body.Close() }()
	again = askAgain
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		again = time.Duration(seconds) * time.Second
	}
	if response.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
		return again, fmt.Errorf("%s: %s", response.Status, said)
	}
	var found struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return again, fmt.Errorf("reading a list: %w", err)
	}
	if len(found.Items) != len(u.names) {
		return again, fmt.Errorf("incomplete list: %d of %d reports", len(found.Items), len(u.names))
	}
	return 0, nil
}
