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
	// loadWorkers is how many requests of each kind are sent at once.
	loadWorkers = 8
	// betweenLists is how long a user pauses between two lists.
	betweenLists = 200 * time.Millisecond
	// listLimit is far longer than a list takes.
	listLimit = 2 * time.Minute
	// askAgain is when a list is asked for again where the answer does not say when.
	askAgain = time.Second
)

// requestKind is what a request for reports does.
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
	// url is that of the reports of the namespace.
	url string
	// names are the reports there. Of those of a user who deletes, the first keptReports stay, and are downloaded.
	names []string
}

// keptReports is how many reports are downloaded, and not deleted.
const keptReports = 64

// answers counts those to requests of a kind by their status codes; 0 is none.
type answers map[int]int

// add adds up counts.
func (a answers) add(b answers) {
	for code, n := range b {
		a[code] += n
	}
}

// done is how many requests did what they should.
func (a answers) done() (n int) {
	for code := range a {
		if code/100 == 2 {
			n += a[code]
		}
	}
	return n
}

// others are the answers that are neither done nor refusals of too many requests, as text; n is how many there are.
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

// load sends requests of each kind until the context ends, loadWorkers at once, each as soon as the one before it has been answered: what is
// refused is sent again at once, whatever the answer says.
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
					if ctx.Err() != nil { // which cut it off
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

// send sends the request of that number, reads the answer to its end, and returns the status code, or 0 where the answer broke off.
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

// times lists the reports again and again for so long, and returns how long each list took.
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

// complete lists until an answer has all reports. It asks again when the answer says.
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

// maxAnswer is how much of an answer that has no list is read.
const maxAnswer = 4 << 10

// list asks for the reports once. Where the answer does not have all, err says what it has, and again is when another one may.
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
		return again, fmt.Errorf("a list has %d of %d reports", len(found.Items), len(u.names))
	}
	return 0, nil
}
